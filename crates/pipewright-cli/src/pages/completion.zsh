# Completes the command after the options of `run` and `pipe` as that command's own completion does.
(( $+functions[_pipewright_command_words] )) ||
_pipewright_command_words() {
    local -i i
    # In a pipeline, the command at the cursor is the one after the last '|'.
    for (( i = CURRENT - 1; i > 0; i-- )); do
        if [[ "${(Q)words[i]}" == "|" || ( $i -eq 2 && "${(Q)words[1]}" == "<" ) ]]; then
            shift $i words
            (( CURRENT -= i ))
            break
        fi
    done
    if [[ "${(Q)words[1]}" == "<" && CURRENT -eq 2 || "${(Q)words[CURRENT - 1]}" == ">"(|">") ]]; then
        _files
    else
        _normal
    fi
}

