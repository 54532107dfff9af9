# __words sets cur, prev, words and cword of its caller. Bash splits words at = and : too, and this joins those that
# stand together in the line.
__words() {
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref "$@"
        return
    fi
    local rest="${COMP_LINE:0:COMP_POINT}" i word
    words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word="${COMP_WORDS[i]}"
        if [[ $i -eq 0 || $rest == [[:space:]]* ]]; then
            rest="${rest#"${rest%%[![:space:]]*}"}"
            words+=("")
        fi
        if [[ $i -eq $COMP_CWORD ]]; then
            word="$rest" # as far as the cursor
        fi
        words[${#words[@]}-1]+="$word"
        rest="${rest#"$word"}"
    done
    cword=$((${#words[@]} - 1))
    cur="${words[cword]}"
    prev=""
    if ((cword > 0)); then
        prev="${words[cword-1]}"
    fi
}

