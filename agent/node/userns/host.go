package userns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// owner is the user whose subordinate ids the pods get, if that user exists.
const owner = "kubelet"

// Host returns the host's ids for pods: the subordinate ids of the user kubelet (subuid(5)), if
// that user and getsubids exist, else all but the first perPod.
func Host(ctx context.Context, perPod uint32, pods int) (Block, error) {
	all := Block{First: perPod, Length: uint32(1<<32 - uint64(perPod))}
	if _, err := user.Lookup(owner); err != nil {
		if errors.As(err, new(user.UnknownUserError)) {
			return all, nil
		}
		return Block{}, fmt.Errorf("look for user %s: %w", owner, err)
	}
	program, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return Block{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	users, err := exec.CommandContext(ctx, program, owner).Output()
	if err != nil {
		return Block{}, fmt.Errorf("ask for the subordinate users of %s: %w", owner, err)
	}
	groups, err := exec.CommandContext(ctx, program, "-g", owner).Output()
	if err != nil {
		return Block{}, fmt.Errorf("ask for the subordinate groups of %s: %w", owner, err)
	}
	return subordinate(users, groups, perPod, pods)
}

// subordinate parses the output of getsubids, which must be the same for users and groups.
func subordinate(users, groups []byte, perPod uint32, pods int) (Block, error) {
	if !bytes.Equal(users, groups) {
		return Block{}, fmt.Errorf("the subordinate users of %s are %q, and the groups %q: they "+
			"must be the same in /etc/subuid and /etc/subgid", owner, users, groups)
	}
	lines := strings.Split(strings.TrimSpace(string(users)), "\n")
	fields := strings.Fields(lines[0]) // "0: kubelet 65536 7208960"
	if len(lines) != 1 || len(fields) != 4 {
		return Block{}, fmt.Errorf("the subordinate ids of %s must be one range, not %q; see "+
			"/etc/subuid", owner, users)
	}
	first, err := strconv.ParseUint(fields[2], 10, 32)
	length, err2 := strconv.ParseUint(fields[3], 10, 32)
	if err := errors.Join(err, err2); err != nil {
		return Block{}, fmt.Errorf("the subordinate ids of %s: %w", owner, err)
	}
	b := Block{uint32(first), uint32(length)}
	switch {
	case first < uint64(perPod) || first%65536 != 0 || length%65536 != 0:
		return b, fmt.Errorf("the subordinate ids of %s, %d from %d on, must begin at %d or "+
			"later, and begin and end at multiples of 65536", owner, length, first, perPod)
	case first+length > 1<<32:
		return b, fmt.Errorf("the subordinate ids of %s, %d from %d on, are more than there are",
			owner, length, first)
	case length/uint64(perPod) < uint64(pods):
		return b, fmt.Errorf("the subordinate ids of %s, %d from %d on, must be %d each for %d "+
			"pods (userNamespaces.idsPerPod, maxPods)", owner, length, first, perPod, pods)
	}
	return b, nil
}
