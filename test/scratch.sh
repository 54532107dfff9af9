# For bash scripts that run tests: a folder for all that they make, and what to do to leave nothing.

# scratch_enter makes the folder, sets TMPDIR to it, and removes what a run that was killed has left
# there. A tree has always the same one, so that results of tests are cached; while another run has
# that, it is a new one. Its path is as long as test/scratch allows. File descriptor 8 locks it.
scratch_enter() {
    local dir
    dir=/tmp/n$(sha256sum <<<"$PWD" | cut -c1-4)
    mkdir -m 711 "$dir" 2>/dev/null
    if [ -L "$dir" ] || [ ! -O "$dir" ] || ! exec 8<"$dir" || ! flock -n 8 ||
        [ ! "$dir" -ef /proc/self/fd/8 ]; then
        dir=$(mktemp -d /tmp/nXXXX) && chmod 711 "$dir" && exec 8<"$dir" && flock -n 8 || exit 1
    fi
    export TMPDIR=$dir
    scratch_clear
}

# scratch_leave removes the folder and whatever else is left of what ran with it. With an argument
# other than 0, tests have failed: the files that they name are kept.
scratch_leave() {
    scratch_clear "${1:-0}"
    exec 8<&-
    rmdir "$TMPDIR" 2>/dev/null ||
        echo "== files of failed tests are kept in $TMPDIR until the next run"
    unset TMPDIR
}

scratch_clear() { # FAILED
    scratch_end
    local left
    left=$(find "$TMPDIR" -mindepth 2 -maxdepth 4 -name config.toml 2>/dev/null
        find /sys/fs/cgroup -mindepth 1 -maxdepth 2 -name "${TMPDIR##*/}-*" 2>/dev/null)
    if [ -n "$left" ]; then
        GOFLAGS=-trimpath go run ./test/scratch/sweep 8<&- || echo "== left as it is: $left" >&2
    fi
    if [ "$(id -u)" = 0 ]; then
        test/scratch/hugetlb.sh "${TMPDIR##*/}"
    fi
    local keep=(! -name 'nl-*')
    if [ "${1:-0}" = 0 ]; then
        keep=()
    fi
    scratch_unmount
    if [ -n "$(scratch_mounts)" ]; then # never remove what is another's, mounted here
        echo "== left as it is, since something is mounted there: $TMPDIR" >&2
        return
    fi
    find "$TMPDIR" -mindepth 1 -maxdepth 1 "${keep[@]}" -exec rm -rf {} +
    rm -rf "/dev/shm/${TMPDIR##*/}"-*
}

# scratch_processes are the ids of processes that were started with this TMPDIR.
scratch_processes() {
    env -u TMPDIR grep -slzxF "TMPDIR=$TMPDIR" /proc/[0-9]*/environ | cut -d/ -f3
}

# scratch_end ends them: a while after SIGINT or SIGTERM, at which playgrounds clean up behind
# themselves, by SIGKILL.
scratch_end() {
    local i pids
    for i in {1..150}; do
        pids=$(scratch_processes)
        [ -n "$pids" ] || return 0
        if [ "$i" = 1 ]; then
            scratch_signal TERM "$pids"
        elif [ "$i" -gt 100 ]; then
            scratch_signal KILL "$pids"
        fi
        sleep 0.2
    done
}

scratch_signal() { # SIGNAL PIDS
    local pid
    for pid in $2; do
        kill "-$1" "$pid" 2>/dev/null
    done
}

scratch_mounts() { # the last mounted first
    awk -v dir="$TMPDIR/" 'index($2, dir) == 1 {print $2}' /proc/self/mounts | tac
}

scratch_unmount() {
    scratch_mounts | while read -r at; do
        umount -l "$(printf '%b' "$at")" 2>/dev/null
    done
}
