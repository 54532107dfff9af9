// Witness is the program of images of tests: whatever its arguments are it writes all that a
// process can see of its container as one line of JSON to its standard output, and waits for
// SIGTERM. Of its arguments it knows these, and leaves others alone:
//
//	--message=TEXT  write a termination message first
//	--exit=CODE     end so, and do not wait
//	--once=FILE     the same, but only if there is no such file yet, which it makes
package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if err := json.NewEncoder(os.Stdout).Encode(look()); err != nil {
		fatal(err)
	}
	ask := func(name string) (value string, asked bool) {
		for _, arg := range os.Args[1:] {
			if value, asked = strings.CutPrefix(arg, "--"+name+"="); asked {
				return value, true
			}
		}
		return "", false
	}
	if text, asked := ask("message"); asked {
		if err := os.WriteFile("/dev/termination-log", []byte(text), 0o644); err != nil {
			fatal(err)
		}
	}
	code, ends := ask("exit")
	if file, asked := ask("once"); asked {
		made, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil && !os.IsExist(err) {
			fatal(err)
		}
		ends = err == nil
		_ = made.Close() // nothing is written
	}
	if ends {
		n, err := strconv.Atoi(code)
		if err != nil {
			fatal(err)
		}
		os.Exit(n)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	<-term
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "witness:", err)
	os.Exit(101)
}

// tree holds observations by name, or the error.
type tree map[string]any

// lines returns the lines of a file; without it the tree has the error.
func (t tree) lines(file string) iter.Seq[string] {
	raw, err := os.ReadFile(file)
	if err != nil {
		t["error"] = err.Error()
	}
	return strings.Lines(string(raw))
}

func look() tree {
	hostname, err := os.Hostname()
	dir, dirErr := os.Getwd()
	all := tree{
		"args": os.Args, "env": environment(), "dir": or(dir, dirErr),
		"hostname": or(hostname, err), "first": os.Getpid() == 1,
		"mounts": mounts(), "files": files(), "devices": devices(), "root": names("/"),
		"namespaces": links("/proc/self/ns"),
		"stdin":      link("/proc/self/fd/0"), "stdout": link("/proc/self/fd/1"),
		"status": status(), "limits": limits(), "cgroups": cgroups(),
		"values": values(), "sysctls": sysctls(),
	}
	for _, name := range []string{"oom_score_adj", "uid_map", "gid_map", "loginuid", "attr/current"} {
		all[name] = text("/proc/self/" + name)
	}
	return all
}

func or(value string, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return value
}

func text(file string) string {
	raw, err := os.ReadFile(file)
	return or(strings.Join(strings.Fields(strings.ReplaceAll(string(raw), "\x00", " ")), " "), err)
}

func link(file string) string {
	target, err := os.Readlink(file)
	return or(target, err)
}

func links(dir string) tree {
	out := tree{}
	for _, name := range names(dir) {
		out[name] = link(filepath.Join(dir, name))
	}
	return out
}

func names(dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{or("", err)}
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func environment() tree {
	out := tree{}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		out[name] = value
	}
	return out
}

// status returns the lines about rights, CPUs and memory nodes.
func status() tree {
	out := tree{}
	for line := range out.lines("/proc/self/status") {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
			"NoNewPrivs", "Seccomp", "Seccomp_filters", "Cpus_allowed_list", "Mems_allowed_list",
			"THP_enabled":
			out[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return out
}

func limits() tree {
	out := tree{}
	for line := range out.lines("/proc/self/limits") {
		const name = 26 // its column is so wide
		if len(line) > name {
			out[strings.TrimSpace(line[:name])] = strings.Join(strings.Fields(line[name:]), " ")
		}
	}
	return out
}

// cgroups returns the process's own cgroups, by controllers.
func cgroups() tree {
	out := tree{}
	for line := range out.lines("/proc/self/cgroup") {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			out[parts[1]] = parts[2]
		}
	}
	return out
}

// values returns the settings of the container's cgroups, with both versions of cgroups.
func values() tree {
	out := tree{}
	for _, pattern := range []string{
		"cpu*/cpu.shares", "cpu*/cpu.cfs_*_us", "cpu*/cpu.rt_*_us", "cpuset/cpuset.cpus",
		"cpuset/cpuset.mems", "cpuset/cpuset.*exclusive", "memory/*limit_in_bytes",
		"memory/memory.swappiness", "memory/memory.use_hierarchy", "memory/memory.oom_control",
		"pids/pids.max", "hugetlb/*.limit_in_bytes", "devices/devices.list", "blkio/*weight",
		"cpu.max*", "cpu.weight", "cpuset.cpus", "cpuset.mems", "cpuset.cpus.partition", "io.weight",
		"memory.max", "memory.min", "memory.low", "memory.high", "memory.swap.max",
		"memory.oom.group", "pids.max", "hugetlb.*.max",
	} {
		found, _ := filepath.Glob("/sys/fs/cgroup/" + pattern) // the pattern is right
		for _, file := range found {
			out[strings.TrimPrefix(file, "/sys/fs/cgroup/")] = text(file)
		}
	}
	return out
}

// sysctls returns the sysctls that network and IPC namespaces have for themselves.
func sysctls() tree {
	out := tree{}
	for _, pattern := range []string{"net/core/*", "net/ipv4/*", "net/ipv6/*", "kernel/shm*",
		"kernel/msg*", "kernel/sem", "kernel/hostname", "kernel/domainname", "fs/mqueue/*"} {
		found, _ := filepath.Glob("/proc/sys/" + pattern) // the pattern is right
		for _, file := range found {
			if filepath.Base(file) == "ip_forward" {
				continue // a namespace begins with the machine's, which network plugins turn on
			}
			if info, err := os.Stat(file); err == nil && !info.IsDir() {
				out[strings.TrimPrefix(file, "/proc/sys/")] = text(file)
			}
		}
	}
	return out
}
