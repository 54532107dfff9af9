package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
)

// remnant describes a place where an earlier run of the agent, or a kubelet, staged a volume or
// published it for pods.
type remnant struct {
	place place // path "": none
	uses  []use
	dir   string // of its record
	is    record
	err   error // why the record cannot be used; nil: it can
}

// file is the path of the record.
func (r remnant) file() string { return filepath.Join(r.dir, dataFile) }

// used reports whether the remnant is a pod's mount of a file system.
func (r remnant) used() bool { return r.place.path == "" }

// block returns the name of a block volume; "": it has a file system.
func (r remnant) block() string { return r.place.name }

// remnants reads what is there, in the order of paths. Of a directory without anything of a volume,
// which a kill may leave, there is no remnant. problems says which directories could not be read.
func (p paths) remnants() (out []remnant, problems error) {
	for _, list := range []func() ([]remnant, error){p.published, p.staged, p.blocks} {
		some, err := list()
		out, problems = append(out, some...), errors.Join(problems, err)
	}
	return out, problems
}

// published returns the mounts of volumes in pods' directories.
func (p paths) published() (out []remnant, err error) {
	root := filepath.Join(files.Pattern(string(p)), podsName)
	all, err := filepath.Glob(filepath.Join(root, "*", "volumes", escaped, "*")) // the pattern is sound
	for _, dir := range all {
		uid := types.UID(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir)))))
		u := use{pod: uid, name: filepath.Base(dir)}
		found := remnant{uses: []use{u}, dir: dir}
		found.is, found.err = readRecord(dir)
		if found.err == nil {
			found.err = found.is.fitsUse(u)
		}
		if found.err == nil || isThere(filepath.Join(dir, MountName)) {
			out = append(out, found)
		}
	}
	return out, err
}

// fitsUse refuses the record of another volume.
func (r record) fitsUse(u use) error {
	switch {
	case r.Name != "" && pathOf(r.Name) != u.name:
		return fmt.Errorf("its record is that of volume %s", r.Name)
	case r.Life == ephemeralLife && r.Handle != ephemeralHandle(u.pod, u.name):
		return fmt.Errorf("its record is that of volume %s of another pod", r.Handle)
	default:
		return nil
	}
}

// formerDir is where the kubelet staged volumes by the names of their persistent volumes, before 1.24.
const formerDir = "pv"

// staged returns the places of staged file systems.
func (p paths) staged() (out []remnant, err error) {
	all, err := filepath.Glob(filepath.Join(files.Pattern(p.plugin()), "*", "*")) // the pattern is sound
	for _, dir := range all {
		driver := filepath.Base(filepath.Dir(dir))
		if driver == devices {
			continue
		}
		found := remnant{dir: dir, place: place{path: filepath.Join(dir, globalName)}}
		found.is, found.err = readRecord(dir)
		if found.err == nil {
			found.err = found.is.fitsPlace(driver, filepath.Base(dir))
		}
		found.place.label = found.is.Label
		if found.err == nil || isThere(found.place.path) {
			out = append(out, found)
		}
	}
	return out, err
}

// fitsPlace refuses the record of another volume than the directory is named after.
func (r record) fitsPlace(driver, name string) error {
	fits := driver == r.Driver && name == hash(r.Handle)
	if driver == formerDir {
		fits = r.Name == "" || pathOf(r.Name) == name
	}
	if !fits {
		return fmt.Errorf("its record is that of volume %s of driver %s", r.Handle, r.Driver)
	}
	return nil
}

// blocks returns the block volumes with the pods that have them: of a pod's use there is a file for the
// mount of the device, what the driver has published, and a link in the pod's directory.
func (p paths) blocks() (out []remnant, problems error) {
	pods := map[string]map[types.UID]bool{}
	found := func(volume string) map[types.UID]bool {
		if pods[volume] == nil {
			pods[volume] = map[types.UID]bool{}
		}
		return pods[volume]
	}
	all := files.Pattern(p.block())
	links := filepath.Join(files.Pattern(string(p)), podsName, "*", devices, escaped, "*")
	for pattern, take := range map[string]func(path string){
		filepath.Join(all, "*", "data", dataFile): func(path string) {
			found(filepath.Base(filepath.Dir(filepath.Dir(path))))
		},
		filepath.Join(all, stagingDir, "*"): func(path string) { found(filepath.Base(path)) },
		filepath.Join(all, publishDir, "*", "*"): func(path string) {
			found(filepath.Base(filepath.Dir(path)))[types.UID(filepath.Base(path))] = true
		},
		filepath.Join(all, "*", "dev", "*"): func(path string) {
			volume := filepath.Base(filepath.Dir(filepath.Dir(path)))
			found(volume)[types.UID(filepath.Base(path))] = true
		},
		links: func(path string) {
			pod := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(path))))
			found(filepath.Base(path))[types.UID(pod)] = true
		},
	} {
		matches, err := filepath.Glob(pattern) // the pattern is sound
		problems = errors.Join(problems, err)
		for _, path := range matches {
			take(path)
		}
	}
	delete(pods, stagingDir) // a volume may be called data or dev
	delete(pods, publishDir)
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		one := remnant{dir: p.block(name, "data"), place: place{path: p.block(stagingDir, name), name: name}}
		one.is, one.err = readRecord(one.dir)
		if one.err == nil && one.is.Name != "" && pathOf(one.is.Name) != name {
			one.err = fmt.Errorf("its record is that of volume %s", one.is.Name)
		}
		for _, pod := range slices.Sorted(maps.Keys(pods[name])) {
			one.uses = append(one.uses, use{pod: pod, name: name, block: true})
		}
		out = append(out, one)
	}
	return out, problems
}

// isThere reports whether there is something at a path. It does not touch what is mounted there.
func isThere(path string) bool {
	entries, err := os.ReadDir(filepath.Dir(path))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == filepath.Base(path)
	})
}
