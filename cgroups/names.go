package cgroups

import (
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Driver says who makes cgroups: the agent itself, or systemd on its behalf. The container runtime
// must use the same driver.
type Driver string

// The drivers, as KubeletConfiguration and CRI name them.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

const (
	kubepods    = "kubepods"
	podPrefix   = "pod"
	sliceSuffix = ".slice"
)

// group names a cgroup independently of the driver: the elements of its path from the top.
type group []string

func (g group) child(name string) group {
	return append(g[:len(g):len(g)], name)
}

// path returns the group's path below a hierarchy's mount point, which is also the form of a parent
// in CRI.
func (g group) path(d Driver) string {
	if d != Systemd {
		return "/" + strings.Join(g, "/")
	}
	p := "/"
	for i := range g {
		p = path.Join(p, g[:i+1].slice())
	}
	return p
}

// slice returns the name of the systemd unit. A dash in it means nesting, so dashes inside an
// element become underscores (systemd.slice(5)).
func (g group) slice() string {
	elements := make([]string, len(g))
	for i, e := range g {
		elements[i] = strings.ReplaceAll(e, "-", "_")
	}
	return strings.Join(elements, "-") + sliceSuffix
}

// rootGroup parses cgroupRoot, which is a path ("/", "/a/b") or, for systemd, a slice ("a-b.slice",
// with or without the slices around it).
func rootGroup(d Driver, root string) (group, error) {
	clean := path.Clean("/" + root)
	if strings.Contains(root, "..") {
		return nil, fmt.Errorf("parse cgroupRoot %q: must not contain \"..\"", root)
	}
	if clean == "/" {
		return nil, nil
	}
	if d == Systemd && strings.HasSuffix(clean, sliceSuffix) {
		unit := strings.TrimSuffix(path.Base(clean), sliceSuffix)
		return strings.Split(unit, "-"), nil
	}
	return strings.Split(clean[1:], "/"), nil
}

// qosGroup returns the parent of the pods of a class.
func qosGroup(root group, class v1.PodQOSClass) group {
	g := root.child(kubepods)
	switch class {
	case v1.PodQOSGuaranteed:
		return g
	case v1.PodQOSBestEffort, v1.PodQOSBurstable:
		return g.child(strings.ToLower(string(class)))
	default:
		panic("cgroups: no such QoS class: " + string(class))
	}
}

func podGroup(root group, class v1.PodQOSClass, uid types.UID) group {
	return qosGroup(root, class).child(podPrefix + string(uid))
}

// checkUID refuses a UID that would lead out of the pods' directory: a manifest can have any UID.
func checkUID(uid types.UID) error {
	if uid == "" || strings.Contains(string(uid), "/") {
		return fmt.Errorf("pod UID %q cannot name a cgroup: change metadata.uid or leave it out",
			uid)
	}
	return nil
}

// parsePod parses the UID in the name of a pod's cgroup directory.
func parsePod(d Driver, dir string) (types.UID, bool) {
	if d == Systemd {
		unit, ok := strings.CutSuffix(dir, sliceSuffix)
		if !ok {
			return "", false
		}
		dir = strings.ReplaceAll(unit[strings.LastIndex(unit, "-")+1:], "_", "-")
	}
	uid, ok := strings.CutPrefix(dir, podPrefix)
	return types.UID(uid), ok && uid != ""
}
