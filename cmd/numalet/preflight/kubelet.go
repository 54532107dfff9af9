package preflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Process is a running kubelet.
type Process struct {
	PID  int
	Args []string // without the program's name
	proc string
}

// ErrTwo says that more than one kubelet runs, so that none of them is the node's.
var ErrTwo = errors.New("more than one kubelet runs on this machine")

// FindKubelet returns the kubelet that runs on this machine, by the list of processes in proc, usually
// /proc; nil: none does.
func FindKubelet(proc string) (*Process, error) {
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	if err != nil {
		return nil, err
	}
	var found *Process
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(comm)) != "kubelet" { // it may have ended
			continue
		}
		dir := filepath.Dir(name)
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		if found != nil {
			return nil, ErrTwo
		}
		words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		found = &Process{PID: pid, Args: words[1:], proc: dir}
	}
	return found, nil
}

// Version asks the running program for its version, "v1.37.2".
func (p *Process) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(p.proc, "exe"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask the kubelet's version: %w", err)
	}
	words := strings.Fields(string(out))
	if len(words) == 0 {
		return "", errors.New("ask the kubelet's version: it says nothing")
	}
	return words[len(words)-1], nil
}

// Files are where kubeadm and its packages keep the flags of a kubelet.
type Files struct {
	Config, Kubeconfig, Bootstrap string
	Flags                         string // KUBELET_KUBEADM_ARGS
	Extra                         []string
}

// Kubeadm has the usual files.
func Kubeadm() Files {
	return Files{
		Config: "/var/lib/kubelet/config.yaml", Kubeconfig: "/etc/kubernetes/kubelet.conf",
		Bootstrap: "/etc/kubernetes/bootstrap-kubelet.conf", Flags: "/var/lib/kubelet/kubeadm-flags.env",
		Extra: []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet"},
	}
}

// Args returns the flags with which the units of kubeadm and of numalet start an agent; nil: kubeadm has
// joined this node to no cluster.
func (f Files) Args() ([]string, error) {
	if _, err := os.Stat(f.Config); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	args := []string{"--bootstrap-kubeconfig=" + f.Bootstrap, "--kubeconfig=" + f.Kubeconfig,
		"--config=" + f.Config}
	for _, file := range append([]string{f.Flags}, f.Extra...) {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		args = append(args, variables(raw, "KUBELET_KUBEADM_ARGS", "KUBELET_EXTRA_ARGS")...)
	}
	return args, nil
}

// variables returns the words of these variables in a file of systemd's kind.
func variables(file []byte, names ...string) (words []string) {
	for line := range bytes.Lines(file) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), "=")
		if !ok || !slices.Contains(names, name) {
			continue
		}
		words = append(words, strings.Fields(strings.Trim(value, `"'`))...)
	}
	return words
}
