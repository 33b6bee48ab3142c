"""Tables of numbers as C++ strings, to be read with text::unicode::tables::TableReader."""

COLUMNS = 100


class NumberTable:
    """Five bits a character, the low ones first; the sixth bit says that more follow. '0' is 0."""

    def __init__(self) -> None:
        self.digits: list[str] = []

    def number(self, value: int) -> None:
        assert value >= 0, value
        while value >= 32:
            self.digits.append(chr(ord("0") + (value & 31 | 32)))
            value >>= 5
        self.digits.append(chr(ord("0") + value))

    def signed(self, value: int) -> None:
        self.number(value * 2 if value >= 0 else -value * 2 - 1)

    def text(self, points: list[int]) -> None:
        self.number(len(points))
        for point in points:
            self.number(point)

    def definition(self, name: str) -> str:
        text = "".join(self.digits)
        lines = [text[at : at + COLUMNS] for at in range(0, len(text), COLUMNS)]
        return f'const std::string_view {name} = R"(\n' + "\n".join(lines) + ')";\n'
