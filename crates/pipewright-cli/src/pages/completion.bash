
# Finds the first word of the command that the cursor is in, which follows the options of `run` or `pipe`.
# Sets `start`; fails if the cursor is still in the options.
_pipewright_find_command() {
    local i=2 ends_options=
    while (( i < COMP_CWORD )); do
        case "${COMP_WORDS[i]}" in
            --)
                ends_options=1
                (( i++ ))
                break
                ;;
            @OPTIONS@)
                # The value follows, after a "=" if there is one. "=" also splits K=V into words.
                [[ "${COMP_WORDS[i + 1]}" == "=" ]] && (( i++ ))
                (( i += 2 ))
                while [[ "${COMP_WORDS[i]}" == "=" && i -lt COMP_CWORD ]]; do
                    (( i += 2 ))
                done
                ;;
            -*)
                (( i++ ))
                ;;
            *)
                ends_options=1
                break
                ;;
        esac
    done
    (( i <= COMP_CWORD )) || return 1
    [[ -n "$ends_options" || "${COMP_WORDS[COMP_CWORD]}" != -* ]] || return 1
    start=$i
    if [[ "${COMP_WORDS[1]}" == pipe ]]; then
        # The file that the pipeline reads stands first.
        [[ "${COMP_WORDS[start]}" == ["'\""]"<"["'\""] || "${COMP_WORDS[start]}" == "\\<" ]] && (( start += 2 ))
        for (( i = start; i < COMP_CWORD; i++ )); do
            case "${COMP_WORDS[i]}" in
                "'|'" | '"|"' | "\\|") start=$(( i + 1 )) ;;
                "'>'" | '">"' | "\\>" | "'>>'" | '">>"' | "\\>>" | "\\>\\>") return 2 ;;
            esac
        done
        (( start <= COMP_CWORD )) || return 2
    fi
}

# Completes the command after the options as that command's own completion does.
_pipewright_words() {
    local start
    case "${COMP_WORDS[1]}" in
        run | pipe)
            _pipewright_find_command
            case $? in
                0)
                    if declare -F _comp_command_offset > /dev/null; then
                        _comp_command_offset "$start"
                    elif declare -F _command_offset > /dev/null; then
                        _command_offset "$start"
                    elif (( COMP_CWORD == start )); then
                        local IFS=$'\n'
                        compopt -o filenames 2> /dev/null
                        COMPREPLY=( $(compgen -c -- "${COMP_WORDS[COMP_CWORD]}") )
                    else
                        COMPREPLY=()
                    fi
                    return 0
                    ;;
                2)
                    # A file: left to the shell.
                    COMPREPLY=()
                    return 0
                    ;;
            esac
            ;;
    esac
    # "--option=value" comes as three words.
    if [[ "$3" == "=" ]]; then
        set -- "$1" "$2" "${COMP_WORDS[COMP_CWORD - 2]}"
    elif [[ "${COMP_WORDS[COMP_CWORD]}" == "=" ]]; then
        set -- "$1" "" "$3"
    fi
    _pipewright "$@"
}

complete -F _pipewright_words -o bashdefault -o default pipewright
