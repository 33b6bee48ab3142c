# tools/demo.sh without a terminal: all voices answer, nothing is drawn, no server is left running.
#   demo_test.sh MOTLEY REPOSITORY PYTHON
set -euo pipefail
motley=$1 repository=$2 python=$3

fail() { printf '%s\n' "$@"; exit 1; }

shown=$("$repository/tools/demo.sh" "$motley" wisdom)
for voice in demo cynic fortune jargon record scripture; do
  grep -q "^$voice:$" <<<"$shown" || fail "no answer of $voice:" "$shown"
done
# The voices are what they should be.
grep -q '  {"word": "wisdom", "kind": ' <<<"$shown" || fail "no record:" "$shown"
grep -q '  wisdom (noun): ' <<<"$shown" || fail "no definition:" "$shown"
grep -Eq '^6 answers, [0-9]+ tokens in ' <<<"$shown" || fail "no totals:" "$shown"
grep -q $'\e' <<<"$shown" && fail "escape sequences without a terminal:" "$shown"

# An unknown voice is reported in its place, and the call fails.
exec 3< <(exec "$motley" serve "$repository/models/demo" --device cpu --port 0 2>/dev/null)
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
read -r -t 60 line <&3 || fail "waited 60 s for the server's address"
status=0
shown=$("$motley" ask "${line##* }" wisdom --to demo --to nobody --max-tokens 4 2>&1) || status=$?
[ "$status" = 1 ] || fail "status $status of a failed ask:" "$shown"
grep -q "nobody" <<<"$shown" || fail "no word of who failed:" "$shown"
kill "$server"
wait "$server" || fail "the server ends with status $?"
trap - EXIT

# A port that is taken, and that nothing listens on.
exec 4< <(exec "$python" -c '
import signal, socket
held = socket.socket()
held.bind(("127.0.0.1", 0))
print(held.getsockname()[1], flush=True)
signal.pause()')
holder=$!
trap 'kill "$holder" 2>/dev/null || true' EXIT
read -r -t 60 port <&4 || fail "waited 60 s for a port"
status=0
shown=$("$motley" ask "http://127.0.0.1:$port" wisdom 2>&1) || status=$?
[ "$status" = 1 ] || fail "status $status without a server:" "$shown"
[[ $shown == motley:*"can't reach the server"* ]] || fail "no word of the server:" "$shown"
