package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
)

// Start describes a container that is about to be created.
type Start struct {
	// Attempt is the container's restart count.
	Attempt uint32
	// Env is the container's environment, which subPathExpr may refer to.
	Env []*runtimeapi.KeyValue
	// PodIPs go into /etc/hosts. A pod without address and with its own network gets no such file.
	PodIPs []string
	// RecursiveReadOnly: the pod's runtime handler can make a mount read-only together with the
	// mounts below it.
	RecursiveReadOnly bool
	// Images has the runtime's names of the images of image volumes, by volume.
	Images map[string]string
	// ImageHandler is the runtime handler that they are for; "": none in particular.
	ImageHandler string
}

// Containers gives containers what they have of their pods' volumes.
type Containers struct {
	*node
	records Records
}

// Mounts prepares and returns the container's mounts: its volumes, /etc/hosts unless a volume is
// mounted there, and an empty termination message file. SetUp must have succeeded.
func (c Containers) Mounts(
	ctx context.Context, pod *v1.Pod, container *v1.Container, start Start,
) ([]*runtimeapi.Mount, error) {
	if err := check(pod); err != nil {
		return nil, err
	}
	all, err := c.pvcs.usedNow(pod)
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.Mount
	for i := range container.VolumeMounts {
		m, err := c.volumeMount(ctx, mounting{pod, container, all}, i, start)
		if err != nil {
			return nil, fmt.Errorf("container %q mounts volume %q at %s: %w", container.Name,
				container.VolumeMounts[i].Name, container.VolumeMounts[i].MountPath, err)
		}
		out = append(out, m)
	}
	own := func(m *runtimeapi.Mount, err error) error {
		if m != nil {
			out = append(out, m)
		}
		return err
	}
	if !mountsAt(container, etcHosts) {
		dir, err := c.podDir(pod.UID)
		if err == nil {
			err = own(c.cfg.hostsMount(dir, pod, start.PodIPs))
		}
		if err != nil {
			return nil, fmt.Errorf("container %q: %w", container.Name, err)
		}
	}
	if err := own(c.records.terminationMount(pod, container, start.Attempt)); err != nil {
		return nil, fmt.Errorf("container %q: %w", container.Name, err)
	}
	return out, nil
}

func mountsAt(container *v1.Container, path string) bool {
	return slices.ContainsFunc(container.VolumeMounts,
		func(m v1.VolumeMount) bool { return absolute(m.MountPath) == path })
}

// absolute returns a path in a container; relative ones start at the root.
func absolute(path string) string { return filepath.Join("/", path) }

// mounting is a container with the volumes of its pod.
type mounting struct {
	pod       *v1.Pod
	container *v1.Container
	volumes   []used
}

// find returns the volume of that name.
func (m mounting) find(name string) (used, error) {
	at := slices.IndexFunc(m.volumes, func(u used) bool { return u.volume.Name == name })
	if at >= 0 {
		return m.volumes[at], nil
	}
	for _, v := range m.pod.Spec.Volumes {
		if v.Name == name {
			return used{}, fmt.Errorf("what its claim %q is bound to is not known yet",
				pvcOf(m.pod, v))
		}
	}
	return used{}, fmt.Errorf("the pod has no volume of that name; add it to spec.volumes")
}

func (c Containers) volumeMount(
	ctx context.Context, m mounting, index int, start Start,
) (*runtimeapi.Mount, error) {
	wanted := m.container.VolumeMounts[index]
	u, err := m.find(wanted.Name)
	if err != nil {
		return nil, err
	}
	podDir, err := c.podDir(m.pod.UID)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.Mount{
		ContainerPath:  absolute(wanted.MountPath),
		HostPath:       u.path(podDir),
		Readonly:       wanted.ReadOnly || u.plugin.written || u.readOnly,
		SelinuxRelabel: u.plugin.relabel && u.label == "",
		MountOptions:   wanted.BindMountOptions,
	}
	if out.Propagation, err = propagation(wanted.MountPropagation); err != nil {
		return nil, err
	}
	if out.RecursiveReadOnly, err = start.recursiveReadOnly(wanted); err != nil {
		return nil, err
	}
	path, err := subPath(wanted, cri.SubPathIn(start.Env))
	switch {
	case err != nil:
		return nil, err
	case u.plugin.mount != nil:
		out.ImageSubPath = path
		return out, u.plugin.mount(out, m.pod, u, start)
	case path == "":
		return out, nil
	}
	target := filepath.Join(podDir, subPathsDir, u.place().name, m.container.Name, fmt.Sprint(index))
	for at := ""; at == ""; { // again if do waited for an earlier call
		if err := c.calls.do(ctx, "mount "+target, func() (err error) {
			at, err = c.mountSubPath(u.path(podDir), path, target)
			return err
		}); err != nil {
			return nil, err
		}
		out.HostPath = at
	}
	return out, nil
}

func propagation(mode *v1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	wanted := ptr.Deref(mode, v1.MountPropagationNone)
	known, ok := map[v1.MountPropagationMode]runtimeapi.MountPropagation{
		v1.MountPropagationNone:            runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
		v1.MountPropagationHostToContainer: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
		v1.MountPropagationBidirectional:   runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
	}[wanted]
	if !ok {
		return 0, fmt.Errorf("mountPropagation %q is none of None, HostToContainer, Bidirectional",
			wanted)
	}
	return known, nil
}

// recursiveReadOnly decides whether mounts below the volume are read-only too (KEP-3857).
func (s Start) recursiveReadOnly(m v1.VolumeMount) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	mode := *m.RecursiveReadOnly
	switch {
	case mode != v1.RecursiveReadOnlyIfPossible && mode != v1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("recursiveReadOnly %q is none of Disabled, IfPossible, Enabled",
			mode)
	case !m.ReadOnly:
		return false, fmt.Errorf("recursiveReadOnly %s needs readOnly: true", mode)
	case m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone:
		return false, fmt.Errorf("recursiveReadOnly %s cannot be had with mountPropagation %s",
			mode, *m.MountPropagation)
	case mode == v1.RecursiveReadOnlyEnabled && !s.RecursiveReadOnly:
		return false, fmt.Errorf("recursiveReadOnly Enabled is not supported by the container " +
			"runtime; use IfPossible")
	}
	return s.RecursiveReadOnly, nil
}

// subPath returns the path in the volume that is mounted, "" for all of it.
func subPath(m v1.VolumeMount, expand func(string) (string, error)) (string, error) {
	path, field := m.SubPath, "subPath"
	if m.SubPathExpr != "" {
		if m.SubPath != "" {
			return "", fmt.Errorf("subPath and subPathExpr exclude each other")
		}
		var err error
		field = "subPathExpr"
		if path, err = expand(m.SubPathExpr); err != nil {
			return "", err
		}
	}
	if path == "" {
		return "", nil
	}
	if filepath.IsAbs(path) {
		return "", fmt.Errorf("%s %q must not be an absolute path", field, path)
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", fmt.Errorf("%s %q must not contain '..'", field, path)
	}
	return filepath.Clean(path), nil
}
