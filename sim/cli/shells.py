"""Completion scripts of bash, zsh and fish, from one table of commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Flag(NamedTuple):
    """A flag, or an operand.

    Attributes
    ----------
    names : tuple of str
        "--topology", or ("-b", "--begin"); empty for an operand.
    help : str
    takes : str
        What follows, as the help names it; "" for a switch.
    values : tuple of str
        Names that may follow.
    files : bool
        Whether a file or folder may follow.
    several : bool
        Whether names may be joined by commas.
    """

    names: tuple[str, ...]
    help: str
    takes: str
    values: tuple[str, ...]
    files: bool
    several: bool


class Command(NamedTuple):
    """A command, its flags, and its first operand."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    operand: Flag | None


def bash(commands: Sequence[Command]) -> str:
    """Words are cut from the line itself: bash takes `:` and `=` for ends of words, and `torus:8x8` is one."""
    cases = "\n".join(_bash_command(command) for command in commands)
    return f"""# bash completion of weft: source <(weft completion bash)
_weft_names() {{
    COMPREPLY=($(compgen -W "$1" -- "$word"))
}}
_weft_list() {{
    local before=${{word%"${{word##*,}}"}}
    COMPREPLY=($(compgen -P "$before" -W "$1" -- "${{word##*,}}"))
}}
_weft_files() {{
    local IFS=$'\\n'
    compopt -o filenames 2> /dev/null
    COMPREPLY+=($(compgen -f -- "$word"))
}}
_weft() {{
    local line=${{COMP_LINE:0:COMP_POINT}} word previous command cut
    word=${{line##*[[:space:]]}}
    local -a words=($line)
    [ -z "$word" ] && words+=("")
    previous=${{words[${{#words[@]}}-2]}} command=${{words[1]}}
    COMPREPLY=()
    if [ "${{#words[@]}}" -le 2 ]; then
        _weft_names "{" ".join([command.name for command in commands])} --help"
        return
    fi
    case "$command" in
{cases}
    esac
    cut=${{word%"${{word##*[:=]}}"}}
    COMPREPLY=("${{COMPREPLY[@]#"$cut"}}")
}}
complete -F _weft weft
"""


def _bash_command(command: Command) -> str:
    lines = [f"    {command.name})", '        case "$previous" in']
    for flag in command.flags:
        if flag.takes:
            lines.append(f"            {'|'.join(flag.names)}) {_bash_values(flag)} ;;")
    flags = " ".join(name for flag in command.flags for name in flag.names)
    rest = f'if [ "${{word:0:1}}" = - ]; then _weft_names "{flags}"; '
    rest += f"else {_bash_values(command.operand)}; fi" if command.operand else f'else _weft_names "{flags}"; fi'
    return "\n".join([*lines, f"            *) {rest} ;;", "        esac", "        ;;"])


def _bash_values(flag: Flag) -> str:
    done = []
    if flag.values:
        done.append(f'{"_weft_list" if flag.several else "_weft_names"} "{" ".join(flag.values)}"')
    if flag.files:
        done.append("_weft_files")
    return "; ".join(done) or ":"


def zsh(commands: Sequence[Command]) -> str:
    """A function for `fpath`, which `compdef` also takes when it is sourced."""
    named = "\n".join(f"        {_quoted(f'{command.name}:{command.help}')}" for command in commands)
    cases = "\n".join(_zsh_command(command) for command in commands)
    return f"""#compdef weft
# zsh completion of weft: weft completion zsh > ~/.zfunc/_weft
_weft_names_or_files() {{
    compadd -- "$@"
    _files
}}
_weft() {{
    local -a commands=(
{named}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT -= 1 ))
    case $command in
{cases}
    esac
}}
if [ "$funcstack[1]" = _weft ]; then
    _weft "$@"
else
    compdef _weft weft
fi
"""


def _zsh_command(command: Command) -> str:
    specs = []
    for flag in command.flags:
        names = flag.names[0] if len(flag.names) == 1 else "{" + ",".join(flag.names) + "}"
        inside = f"[{_escaped(flag.help)}]{_zsh_values(flag)}"
        specs.append(names + _quoted(inside) if len(flag.names) > 1 else _quoted(names + inside))
    if command.operand:
        specs.append(_quoted(f"*{_zsh_values(command.operand)}"))
    body = " \\\n                ".join(specs)
    return f"        {command.name})\n            _arguments \\\n                {body}\n            ;;"


def _zsh_values(flag: Flag) -> str:
    if not flag.takes:
        return ""
    values = " ".join(value.replace(":", "\\:").replace("(", "\\(").replace(")", "\\)") for value in flag.values)
    what = _escaped(flag.takes)
    if flag.several:
        return f":{what}:_values -s , name {values}"
    if flag.values and flag.files:
        return f":{what}: _weft_names_or_files {values}"
    if flag.values:
        return f":{what}:({values})"
    return f":{what}:_files" if flag.files else f":{what}: "


def fish(commands: Sequence[Command]) -> str:
    """A line for each command and flag."""
    lines = ["# fish completion of weft: weft completion fish > ~/.config/fish/completions/weft.fish",
             "complete -c weft -f"]
    for command in commands:
        lines.append(f"complete -c weft -n __fish_use_subcommand -a {command.name} -d {_fish_quoted(command.help)}")
    for command in commands:
        where = f"-n '__fish_seen_subcommand_from {command.name}'"
        for flag in command.flags:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            lines.append(f"complete -c weft {where} {names} {_fish_values(flag)}-d {_fish_quoted(flag.help)}")
        if command.operand:
            what = f"{_fish_values(command.operand)}-d {_fish_quoted(command.operand.help)}"
            lines.append(f"complete -c weft {where} {what}")
    return "\n".join(lines) + "\n"


def _fish_values(flag: Flag) -> str:
    if not flag.takes:
        return ""
    kind = "-r -F " if flag.files else "-x "
    if not flag.names:
        kind = "-F " if flag.files else ""
    names = " ".join(value.replace("(", "\\(").replace(")", "\\)") for value in flag.values)
    if names and flag.several:
        return f"{kind}-a \"(__fish_complete_list , 'string split \\\" \\\" \\\"{names}\\\"')\" "
    return kind + (f"-a {_fish_quoted(names)} " if names else "")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escaped(text: str) -> str:
    """Text inside a specification of `_arguments`, where brackets and colons have a meaning."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


SHELLS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""Writers of scripts by shell."""
