# Shows that more output than a pipe or a buffer holds, written to nowhere, is an error of one line:
#   lost_output.sh MOTLEY SCRATCH
set -eu
motley=$1 scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

# Empty tensors need no data: a file of these is a header behind its length of eight bytes.
awk 'BEGIN {
  printf "{"
  for (i = 10000; i < 12000; ++i)
    printf "%s\"tensor.%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", (i > 10000 ? "," : ""), i
  printf "}"
}' >header
size=$(wc -c <header)
{
  for shift in 0 8 16 24 32 40 48 56; do
    printf "\\$(printf %o $((size >> shift & 255)))"
  done
  cat header
} >many.safetensors

"$motley" inspect --json many.safetensors >whole
[ "$(wc -c <whole)" -gt 65536 ] || { echo "the output would fit a pipe"; exit 1; }

expect_error() {
  [ "$2" = 1 ] || { echo "$1: exit status $2 instead of 1"; exit 1; }
  line="motley: can't write the result (standard output): check the disk or the pipe"
  [ "$(cat errors)" = "$line" ] || { echo "$1: said '$(cat errors)'"; exit 1; }
}

status=0
"$motley" inspect --json many.safetensors >/dev/full 2>errors || status=$?
expect_error "a full disk" $status

{ status=0; "$motley" inspect --json many.safetensors 2>errors || status=$?; echo $status >status; } | true
expect_error "a closed pipe" "$(cat status)"

status=0
"$motley" inspect --json many.safetensors >&- 2>errors || status=$?
expect_error "a closed descriptor" $status
