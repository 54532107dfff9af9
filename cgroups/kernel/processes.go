package kernel

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
)

// maxGroups bounds how many cgroups are looked at for processes.
const maxGroups = 4096

// Processes returns the ids of the processes in the cgroup at path and below it, as many as most; all is
// false if there are more.
func (g Groups) Processes(path string, most int) (pids []string, all bool) {
	dir := g.mount
	if !g.unified {
		dir = filepath.Join(dir, "memory")
	}
	all, seen := true, 0
	walk := func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil: // it has just disappeared
			return nil
		case !d.IsDir():
			return nil
		case seen == maxGroups || !all:
			all = false
			return fs.SkipAll
		}
		seen++
		pids, all = processes(filepath.Join(path, "cgroup.procs"), pids, most)
		return nil
	}
	_ = filepath.WalkDir(filepath.Join(dir, path), walk) // walk returns no error
	return pids, all
}

// processes adds the processes that a file lists.
func processes(path string, to []string, most int) (pids []string, all bool) {
	f, err := os.Open(path)
	if err != nil {
		return to, true
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if len(to) == most {
			return to, false
		}
		if pid := lines.Text(); pid != "0" { // a process in another PID namespace
			to = append(to, pid)
		}
	}
	return to, true
}
