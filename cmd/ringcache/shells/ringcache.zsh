#compdef ringcache
_ringcache() {
    local line
    local -a names shown
    for line in "${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        names+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  }")
    done
    if (( ${#names} )); then
        compadd -l -d shown -a names
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_ringcache" ]; then
    _ringcache "$@"
else
    compdef _ringcache ringcache
fi
