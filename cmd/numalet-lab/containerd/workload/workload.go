// Package workload holds the programs of the containers in examples and tests. They do nothing, or
// report what they see of the machine from inside.
package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Report describes a container from inside. Lists are in kernel syntax.
type Report struct {
	Args []string          `json:"args"`
	Env  map[string]string `json:"env"`
	// CPUs and Mems are the CPUs and memory nodes allowed ("0-3,8"), from /proc/self/status.
	CPUs string `json:"cpus"`
	Mems string `json:"mems"`
	// Mounts holds the lines of /proc/self/mountinfo, Cgroups those of /proc/self/cgroup.
	Mounts  []string `json:"mounts"`
	Cgroups []string `json:"cgroups"`
	// Devices are the device nodes below /dev, sorted by path.
	Devices []Device `json:"devices"`

	PID         int    `json:"pid"`
	User        User   `json:"user"`
	Hostname    string `json:"hostname"`
	OOMScoreAdj string `json:"oomScoreAdj"`
}

// User holds the ids that the process runs with.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"`
}

// Device describes a device node.
type Device struct {
	Path  string `json:"path"`
	Type  string `json:"type"` // "c" or "b"
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

// Look returns a report of the calling process.
func Look() (Report, error) {
	r := Report{Args: os.Args, Env: map[string]string{}, PID: os.Getpid(),
		User: User{UID: os.Getuid(), GID: os.Getgid()}}
	for _, e := range os.Environ() {
		key, value, _ := strings.Cut(e, "=")
		r.Env[key] = value
	}
	var status, score []string
	for file, into := range map[string]*[]string{
		"status": &status, "mountinfo": &r.Mounts, "cgroup": &r.Cgroups, "oom_score_adj": &score,
	} {
		text, err := os.ReadFile(filepath.Join("/proc/self", file))
		if err != nil {
			return r, err
		}
		*into = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	r.CPUs = statusField(status, "Cpus_allowed_list")
	r.Mems = statusField(status, "Mems_allowed_list")
	r.OOMScoreAdj = score[0]
	var errs [3]error
	r.User.Groups, errs[0] = os.Getgroups()
	r.Hostname, errs[1] = os.Hostname()
	r.Devices, errs[2] = devices("/dev")
	return r, errors.Join(errs[:]...)
}

// Write writes the report as one line of JSON.
func (r Report) Write(w io.Writer) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

func statusField(status []string, name string) string {
	for _, line := range status {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func devices(dir string) ([]Device, error) {
	var found []Device
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.Type()&fs.ModeDevice == 0 {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		d := Device{Path: path, Type: "b"}
		if e.Type()&fs.ModeCharDevice != 0 {
			d.Type = "c"
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			d.Major, d.Minor = unix.Major(stat.Rdev), unix.Minor(stat.Rdev)
		}
		found = append(found, d)
		return nil
	})
	slices.SortFunc(found, func(a, b Device) int { return strings.Compare(a.Path, b.Path) })
	return found, err
}
