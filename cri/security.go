package cri

import (
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// SecurityOptions holds what the node adds to a container's security context.
type SecurityOptions struct {
	// SeccompDefault gives RuntimeDefault to containers that ask for no profile.
	SeccompDefault bool
	// SeccompRoot is the directory of Localhost profiles.
	SeccompRoot string
	// Masked holds paths of this host, beside the common ones, that are hidden from containers if
	// procMount is Default.
	Masked []string
	// ExtraGroups are groups that volumes grant to every process of the pod.
	ExtraGroups []int64
	// IDs holds the ids of a pod with a user namespace.
	IDs *IDs
}

// ImageUser is the user that an image names, by number or by name.
type ImageUser struct {
	UID      *int64
	Username string
}

// maskedPaths and readonlyPaths list what containers must not see, or not change, if procMount is
// Default (https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#proc-access).
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// containerSecurity merges the container's security context over the pod's.
func containerSecurity(
	pod *v1.Pod, container *v1.Container, user ImageUser, o SecurityOptions,
) (*runtimeapi.LinuxContainerSecurityContext, error) {
	own, shared := securityContexts(pod, container)
	if err := verifyNonRoot(pod, container, user); err != nil {
		return nil, err
	}
	seccomp, err := o.seccomp(prefer(own.SeccompProfile, shared.SeccompProfile))
	if err != nil {
		return nil, err
	}
	apparmor, err := appArmor(pod, container)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:         ptr.Deref(own.Privileged, false),
		NamespaceOptions:   namespaces(pod, o.IDs),
		SelinuxOptions:     selinux(prefer(own.SELinuxOptions, shared.SELinuxOptions)),
		ReadonlyRootfs:     ptr.Deref(own.ReadOnlyRootFilesystem, false),
		NoNewPrivs:         !ptr.Deref(own.AllowPrivilegeEscalation, true),
		SupplementalGroups: groups(shared, o.ExtraGroups),
		Seccomp:            seccomp,
		Apparmor:           apparmor,
		ApparmorProfile:    legacyAppArmor(apparmor),
		RunAsGroup:         int64Value(prefer(own.RunAsGroup, shared.RunAsGroup)),
		RunAsUser:          int64Value(prefer(own.RunAsUser, shared.RunAsUser)),
	}
	out.SupplementalGroupsPolicy = groupsPolicy(shared)
	if out.RunAsUser == nil {
		if out.RunAsUser = int64Value(user.UID); out.RunAsUser == nil {
			out.RunAsUsername = user.Username
		}
	}
	if c := own.Capabilities; c != nil {
		out.Capabilities = &runtimeapi.Capability{
			AddCapabilities: capabilityNames(c.Add), DropCapabilities: capabilityNames(c.Drop),
		}
	}
	if ptr.Deref(own.ProcMount, v1.DefaultProcMount) == v1.UnmaskedProcMount {
		return out, nil
	}
	out.MaskedPaths, out.ReadonlyPaths = append(maskedPaths(), o.Masked...), readonlyPaths()
	return out, nil
}

// securityContexts returns the container's and the pod's own contexts, empty if not set.
func securityContexts(pod *v1.Pod, c *v1.Container) (v1.SecurityContext, v1.PodSecurityContext) {
	return ptr.Deref(c.SecurityContext, v1.SecurityContext{}),
		ptr.Deref(pod.Spec.SecurityContext, v1.PodSecurityContext{})
}

// prefer returns the container's setting, or the pod's if the container has none.
func prefer[T any](own, shared *T) *T {
	if own != nil {
		return own
	}
	return shared
}

// verifyNonRoot refuses a container that sets runAsNonRoot and would run as root.
func verifyNonRoot(pod *v1.Pod, container *v1.Container, user ImageUser) error {
	own, shared := securityContexts(pod, container)
	if !ptr.Deref(prefer(own.RunAsNonRoot, shared.RunAsNonRoot), false) {
		return nil
	}
	who := fmt.Sprintf("(pod: %q, container: %s)",
		fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID), container.Name)
	uid := prefer(own.RunAsUser, shared.RunAsUser)
	switch {
	case uid != nil && *uid == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", who)
	case uid != nil:
		return nil
	case user.UID == nil && user.Username != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), "+
			"cannot verify user is non-root %s", user.Username, who)
	case ptr.Deref(user.UID, 0) == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", who)
	}
	return nil
}

func (o SecurityOptions) seccomp(p *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	if p == nil {
		p = &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
		if o.SeccompDefault {
			p.Type = v1.SeccompProfileTypeRuntimeDefault
		}
	}
	name := ptr.Deref(p.LocalhostProfile, "")
	if p.Type == v1.SeccompProfileTypeLocalhost && !filepath.IsLocal(name) {
		return nil, fmt.Errorf("seccomp profile %q: localhostProfile must be a path below %s",
			name, o.SeccompRoot)
	}
	return named("seccomp", string(p.Type), filepath.Join(o.SeccompRoot, name))
}

// named returns the profile of a type, which CRI names as pods do. ref is used for type Localhost.
func named(of, kind, ref string) (*runtimeapi.SecurityProfile, error) {
	known, ok := runtimeapi.SecurityProfile_ProfileType_value[kind]
	if !ok {
		return nil, fmt.Errorf("%s profile type %q is none of "+
			"RuntimeDefault, Unconfined, Localhost", of, kind)
	}
	out := profile(runtimeapi.SecurityProfile_ProfileType(known))
	if out.ProfileType == runtimeapi.SecurityProfile_Localhost {
		out.LocalhostRef = ref
	}
	return out, nil
}

func profile(kind runtimeapi.SecurityProfile_ProfileType) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: kind}
}

// appArmor returns the profile in the container's field, its annotation, or the pod's field; nil
// leaves the choice to the runtime.
func appArmor(pod *v1.Pod, container *v1.Container) (*runtimeapi.SecurityProfile, error) {
	own, shared := securityContexts(pod, container)
	p := own.AppArmorProfile
	if p == nil {
		key := v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container.Name
		if text, ok := pod.Annotations[key]; ok {
			return parseAppArmor(text)
		}
		p = shared.AppArmorProfile
	}
	if p == nil {
		return nil, nil
	}
	name := ptr.Deref(p.LocalhostProfile, "")
	if p.Type == v1.AppArmorProfileTypeLocalhost && name == "" {
		return nil, fmt.Errorf("AppArmor profile of type Localhost needs localhostProfile")
	}
	return named("AppArmor", string(p.Type), name)
}

// The names of AppArmor profiles in annotations and in the deprecated CRI field.
const (
	appArmorDefault    = "runtime/default"
	appArmorUnconfined = "unconfined"
	appArmorLocalhost  = "localhost/"
)

func parseAppArmor(text string) (*runtimeapi.SecurityProfile, error) {
	name, local := strings.CutPrefix(text, appArmorLocalhost)
	switch {
	case text == "":
		return nil, nil
	case text == appArmorDefault:
		return named("AppArmor", string(v1.AppArmorProfileTypeRuntimeDefault), "")
	case text == appArmorUnconfined:
		return named("AppArmor", string(v1.AppArmorProfileTypeUnconfined), "")
	case local && name != "":
		return named("AppArmor", string(v1.AppArmorProfileTypeLocalhost), name)
	}
	return nil, fmt.Errorf("AppArmor annotation %q is none of %s, %s, %sNAME",
		text, appArmorDefault, appArmorUnconfined, appArmorLocalhost)
}

// legacyAppArmor returns the profile for runtimes that read only the deprecated field.
func legacyAppArmor(p *runtimeapi.SecurityProfile) string {
	switch {
	case p == nil:
		return ""
	case p.ProfileType == runtimeapi.SecurityProfile_RuntimeDefault:
		return appArmorDefault
	case p.ProfileType == runtimeapi.SecurityProfile_Unconfined:
		return appArmorUnconfined
	default:
		return appArmorLocalhost + p.LocalhostRef
	}
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// groups returns the supplemental groups of every process of the pod.
func groups(shared v1.PodSecurityContext, extra []int64) []int64 {
	var out []int64
	if shared.FSGroup != nil {
		out = append(out, *shared.FSGroup)
	}
	out = append(out, extra...)
	return append(out, shared.SupplementalGroups...)
}

func groupsPolicy(shared v1.PodSecurityContext) runtimeapi.SupplementalGroupsPolicy {
	policy := string(ptr.Deref(shared.SupplementalGroupsPolicy, "")) // Merge is CRI's zero value
	return runtimeapi.SupplementalGroupsPolicy(runtimeapi.SupplementalGroupsPolicy_value[policy])
}

func capabilityNames(list []v1.Capability) []string {
	var out []string
	for _, capability := range list {
		out = append(out, string(capability))
	}
	return out
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}
