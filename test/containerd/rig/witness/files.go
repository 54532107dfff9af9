package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// mount is a line of /proc/self/mountinfo, proc_pid_mountinfo(5).
type mount struct {
	// Root is the mounted part of the file system; Source and Kind identify that.
	Root    string `json:"root"`
	Source  string `json:"source"`
	Kind    string `json:"kind"`
	Options string `json:"options"`
	// Of has the options of the file system.
	Of string `json:"of"`
	// Propagation has the names of the optional fields, without the numbers of groups.
	Propagation string `json:"propagation"`
}

// mounts returns the mounts at each mount point, the lowest first.
func mounts() map[string][]mount {
	out := map[string][]mount{}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		out["error: "+err.Error()] = nil
	}
	for line := range strings.Lines(string(raw)) {
		fields, rest, _ := strings.Cut(strings.TrimSpace(line), " - ")
		f, r := strings.Fields(fields), strings.Fields(rest)
		if len(f) < 6 || len(r) < 3 {
			out["not understood: "+line] = nil
			continue
		}
		var propagation []string
		for _, o := range f[6:] {
			kind, _, _ := strings.Cut(o, ":")
			propagation = append(propagation, kind)
		}
		out[f[4]] = append(out[f[4]], mount{Root: f[3], Source: r[1], Kind: r[0],
			Options: f[5], Of: r[2], Propagation: strings.Join(propagation, " ")})
	}
	return out
}

// Bounds of the report on a volume: files, depth, and bytes of a text.
const (
	maxFiles = 40
	maxDepth = 3
	maxText  = 1024
)

// files returns the files of volumes, and those that the runtime mounts. A mount inside another one
// is reported as itself, or not at all: /dev/shm may have files of other processes on the machine.
func files() tree {
	out, points := tree{}, mounts()
	for point := range points {
		if point == "/" || strings.HasPrefix(point, "/proc") || strings.HasPrefix(point, "/sys") ||
			strings.HasPrefix(point, "/dev/") && point != "/dev/termination-log" {
			continue
		}
		left := maxFiles
		err := filepath.WalkDir(point, func(path string, e fs.DirEntry, err error) error {
			if left--; left < 0 {
				return fs.SkipAll
			}
			out[path] = file(path)
			depth := strings.Count(strings.TrimPrefix(path, point), "/")
			_, mounted := points[path]
			if err == nil && e.IsDir() && (depth == maxDepth || mounted && path != point) {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			out[point] = "error: " + err.Error()
		}
	}
	return out
}

// file returns mode, owner and group, and the content of a text that everybody may read; of a link
// the target: its owner has no effect.
func file(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return "error: " + err.Error()
	}
	out := owned(info)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return "-> " + link(path)
	case info.Mode().IsRegular() && info.Mode()&0o4 != 0 && info.Size() <= maxText:
		raw, err := os.ReadFile(path)
		return out + " " + or(string(raw), err)
	}
	return out
}

func owned(info fs.FileInfo) string {
	out := info.Mode().String()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		out += fmt.Sprintf(" %d:%d", stat.Uid, stat.Gid)
	}
	return out
}

// devices returns the nodes right below /dev, with mode, owner and number.
func devices() tree {
	out := tree{}
	entries, err := os.ReadDir("/dev")
	if err != nil {
		out["error"] = err.Error()
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode()&fs.ModeDevice == 0 {
			continue
		}
		number := uint64(0)
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			number = stat.Rdev
		}
		out[e.Name()] = fmt.Sprintf("%s %d:%d", owned(info), unix.Major(number),
			unix.Minor(number))
	}
	return out
}
