package selinux

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/topology/podspec"
)

// Host says what the host's SELinux says.
type Host struct {
	// Enabled reports whether the host has SELinux.
	Enabled func() bool
	// FileLabel returns the label of files for a process with such options; what they leave out is the
	// host's.
	FileLabel func(*v1.SELinuxOptions) (string, error)
}

// Labels decides for the volumes of a node. A nil *Labels mounts nothing with a label.
type Labels struct {
	host    Host
	enabled func(gate string) bool
	metrics *instruments
}

// New registers the kubelet's metrics. enabled reports whether a feature gate is on.
func New(host Host, enabled func(gate string) bool, r metrics.KubeRegistry) (*Labels, error) {
	l := &Labels{host: host, enabled: enabled, metrics: newInstruments()}
	return l, l.metrics.Register(r)
}

// Enabled reports whether volumes have labels at all.
func (l *Labels) Enabled() bool {
	return l != nil && l.enabled("SELinuxMountReadWriteOncePod") && l.host.Enabled()
}

// Volume is a persistent volume of a pod.
type Volume struct {
	Name   string // in the pod's spec
	Plugin string // the name of its type, with the driver
	PV     *v1.PersistentVolume
	// Supports: the type, or its driver, can mount it with a context.
	Supports bool
}

// Mounts reports whether volumes of these access modes are mounted with a context: those of
// ReadWriteOncePod alone, or all.
func (l *Labels) Mounts(pv *v1.PersistentVolume) bool {
	modes := pv.Spec.AccessModes
	return l.Enabled() && (l.enabled("SELinuxMount") ||
		len(modes) == 1 && modes[0] == v1.ReadWriteOncePod)
}

// Of returns the label that the volume should have for the pod; "": none. An error keeps the pod from
// the volume; its words are the kubelet's.
func (l *Labels) Of(pod *v1.Pod, v Volume) (string, error) {
	if !l.Enabled() {
		return "", nil
	}
	found := map[string]bool{}
	label := ""
	for _, options := range optionsOf(pod, v.Name) {
		one, err := l.host.FileLabel(options)
		if err != nil {
			return "", l.refuse(v, l.metrics.container, fmt.Errorf(
				"failed to construct SELinux label from context %q: %w", options, err), mode(v.PV))
		}
		found[one], label = true, one
	}
	if len(found) > 1 {
		var all []string
		for one := range found {
			all = append(all, one)
		}
		slices.Sort(all)
		return "", l.refuse(v, l.metrics.pod, fmt.Errorf("multiple SELinux labels found: %s",
			strings.Join(all, ",")), mode(v.PV))
	}
	if !v.Supports || l.enabled("SELinuxChangePolicy") && policy(pod) == v1.SELinuxChangePolicyRecursive {
		return "", nil
	}
	return label, nil
}

// Admitted counts a volume that gets a label.
func (l *Labels) Admitted(v Volume, label string) {
	if label != "" {
		l.metrics.admitted.WithLabelValues(v.Plugin, mode(v.PV)).Inc()
	}
}

// Conflict returns why a pod cannot have the volume with a label while another pod has it with another
// one; nil: it can, and that is counted.
func (l *Labels) Conflict(v Volume, has, wants string) error {
	return l.refuse(v, l.metrics.volume, fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q",
		v.PV.Name, has, wants), v.Plugin, mode(v.PV))
}

// refuse counts an error, and returns it unless volumes of these access modes have no labels yet.
func (l *Labels) refuse(v Volume, m mismatches, err error, labels ...string) error {
	if l.Mounts(v.PV) {
		m.errors.WithLabelValues(labels...).Inc()
		return err
	}
	m.warnings.WithLabelValues(labels...).Inc()
	return nil
}

// optionsOf returns the options of the containers that mount the volume, if they or the pod have some.
func optionsOf(pod *v1.Pod, volume string) (out []*v1.SELinuxOptions) {
	var shared *v1.SELinuxOptions
	if sc := pod.Spec.SecurityContext; sc != nil {
		shared = sc.SELinuxOptions
	}
	for c := range podspec.All(pod) {
		options := shared
		if sc := c.SecurityContext; sc != nil && sc.SELinuxOptions != nil {
			options = sc.SELinuxOptions
		}
		mounts := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
		if mounts && options != nil {
			out = append(out, options)
		}
	}
	return out
}

func policy(pod *v1.Pod) v1.PodSELinuxChangePolicy {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SELinuxChangePolicy != nil {
		return *sc.SELinuxChangePolicy
	}
	return v1.SELinuxChangePolicyMountOption
}

// mode returns the widest access mode of a volume, as the kubelet's metrics name it.
func mode(pv *v1.PersistentVolume) string {
	for _, m := range []struct {
		mode v1.PersistentVolumeAccessMode
		name string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"}, {v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(pv.Spec.AccessModes, m.mode) {
			return m.name
		}
	}
	return ""
}

// Option returns the mount option for a label. The quotes keep commas of the label together.
func Option(label string) string { return fmt.Sprintf("context=%q", label) }
