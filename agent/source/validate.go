package source

import (
	"fmt"
	"math"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePod checks the rules that the API has for new pods, as far as the node relies on them.
// The pod has its defaults. Errors carry paths from the root of the pod.
func validatePod(pod *v1.Pod) field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	if errs := validateSize(pod, spec); len(errs) > 0 {
		return errs
	}
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true,
		apivalidation.NameIsDNSSubdomain, meta)
	errs = append(errs, validateUID(pod, meta.Child("uid"))...)
	volumes, volumeErrs := validateVolumes(pod.Spec.Volumes, spec.Child("volumes"))
	errs = append(errs, volumeErrs...)
	errs = append(errs, validateContainers(&pod.Spec, volumes, spec)...)
	errs = append(errs, validateHostPorts(&pod.Spec, spec)...)
	errs = append(errs, validateSpec(&pod.Spec, spec)...)
	errs = append(errs, validateDNS(&pod.Spec, spec)...)
	errs = append(errs, validatePodSecurity(&pod.Spec, spec)...)
	errs = append(errs, validateAmounts(pod.Spec.Overhead, spec.Child("overhead"))...)
	if pod.Spec.Resources != nil {
		errs = append(errs, validateResources(pod.Spec.Resources, spec.Child("resources"))...)
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return strings.Compare(a.Field, b.Field)
	})
	return errs
}

// safeUID matches what is safe as the name of a directory and of a cgroup.
var safeUID = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,126}[A-Za-z0-9])?$`)

// validateUID allows what is safe as the name of a directory and of a cgroup.
func validateUID(pod *v1.Pod, at *field.Path) field.ErrorList {
	if safeUID.MatchString(string(pod.UID)) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, string(pod.UID),
		"must be letters, digits and dashes, at most 128; leave it out to have one made")}
}

// oneOf checks a field that has a few possible values.
func oneOf[T ~string](at *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, allowed)}
}

// texts makes an error of each message that a check of a string gives.
func texts(at *field.Path, value string, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(at, value, m))
	}
	return errs
}

func between(at *field.Path, value, low, high int64) field.ErrorList {
	if value >= low && value <= high {
		return nil
	}
	return field.ErrorList{field.Invalid(at, value, fmt.Sprintf("must be %d to %d", low, high))}
}

func validateSpec(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := oneOf(at.Child("restartPolicy"), s.RestartPolicy,
		v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	errs = append(errs, between(at.Child("terminationGracePeriodSeconds"),
		*s.TerminationGracePeriodSeconds, 0, math.MaxInt64)...)
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, between(at.Child("activeDeadlineSeconds"),
			*s.ActiveDeadlineSeconds, 1, math.MaxInt32)...)
	}
	for name, value := range map[string]string{"hostname": s.Hostname, "subdomain": s.Subdomain} {
		if value != "" {
			errs = append(errs, texts(at.Child(name), value, validation.IsDNS1123Label(value))...)
		}
	}
	for name, value := range map[string]*string{
		"priorityClassName": &s.PriorityClassName, "runtimeClassName": s.RuntimeClassName,
	} {
		if value != nil && *value != "" {
			errs = append(errs,
				texts(at.Child(name), *value, validation.IsDNS1123Subdomain(*value))...)
		}
	}
	// Above this only the system's own classes are.
	const highestUserPriority = 1000000000
	if p := s.Priority; p != nil && *p > highestUserPriority &&
		!strings.HasPrefix(s.PriorityClassName, "system-") {
		errs = append(errs, field.Forbidden(at.Child("priority"), fmt.Sprintf(
			"above %d needs priorityClassName system-node-critical or system-cluster-critical",
			highestUserPriority)))
	}
	if len(s.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(at.Child("ephemeralContainers"),
			"a new pod cannot have them"))
	}
	if len(s.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(at.Child("schedulingGates"),
			"the pod is on its node already"))
	}
	return append(errs, validateTolerations(s.Tolerations, at.Child("tolerations"))...)
}

func validateTolerations(tolerations []v1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range tolerations {
		at := at.Index(i)
		errs = append(errs, oneOf(at.Child("operator"), t.Operator, "", v1.TolerationOpEqual,
			v1.TolerationOpExists)...)
		errs = append(errs, oneOf(at.Child("effect"), t.Effect, "", v1.TaintEffectNoSchedule,
			v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)...)
		if t.Key == "" && t.Operator != v1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), string(t.Operator),
				"must be Exists when key is empty"))
		}
		if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), string(t.Effect),
				"must be NoExecute when tolerationSeconds is set"))
		}
	}
	return errs
}

func validateDNS(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := oneOf(at.Child("dnsPolicy"), s.DNSPolicy, v1.DNSClusterFirst, v1.DNSDefault,
		v1.DNSClusterFirstWithHostNet, v1.DNSNone)
	servers := at.Child("dnsConfig", "nameservers")
	if s.DNSPolicy == v1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		errs = append(errs, field.Required(servers, "dnsPolicy None needs at least one"))
	}
	if s.DNSConfig != nil {
		for i, ip := range s.DNSConfig.Nameservers {
			errs = append(errs, validateIP(servers.Index(i), ip)...)
		}
		if n := len(s.DNSConfig.Nameservers); n > 3 {
			errs = append(errs, field.TooMany(servers, n, 3))
		}
	}
	for i, alias := range s.HostAliases {
		at := at.Child("hostAliases").Index(i)
		errs = append(errs, validateIP(at.Child("ip"), alias.IP)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, texts(at.Child("hostnames").Index(j), name,
				validation.IsDNS1123Subdomain(name))...)
		}
	}
	return errs
}

func validateIP(at *field.Path, ip string) field.ErrorList {
	if net.ParseIP(ip) == nil {
		return field.ErrorList{field.Invalid(at, ip, "must be an IP address")}
	}
	return nil
}

func validatePodSecurity(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.HostPID && s.ShareProcessNamespace != nil && *s.ShareProcessNamespace {
		errs = append(errs, field.Forbidden(at.Child("shareProcessNamespace"),
			"cannot be true together with hostPID"))
	}
	if s.HostUsers != nil && !*s.HostUsers && (s.HostNetwork || s.HostPID || s.HostIPC) {
		errs = append(errs, field.Forbidden(at.Child("hostUsers"),
			"cannot be false together with hostNetwork, hostPID or hostIPC"))
	}
	sc, at := s.SecurityContext, at.Child("securityContext")
	errs = append(errs, validateIDs(at, sc.RunAsUser, sc.RunAsGroup)...)
	if sc.FSGroup != nil {
		errs = append(errs, between(at.Child("fsGroup"), *sc.FSGroup, 0, math.MaxInt32)...)
	}
	for i, group := range sc.SupplementalGroups {
		errs = append(errs,
			between(at.Child("supplementalGroups").Index(i), group, 0, math.MaxInt32)...)
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	return append(errs, validateSysctls(sc.Sysctls, at.Child("sysctls"))...)
}

func validateIDs(at *field.Path, user, group *int64) field.ErrorList {
	var errs field.ErrorList
	if user != nil {
		errs = append(errs, between(at.Child("runAsUser"), *user, 0, math.MaxInt32)...)
	}
	if group != nil {
		errs = append(errs, between(at.Child("runAsGroup"), *group, 0, math.MaxInt32)...)
	}
	return errs
}

func validateSeccomp(p *v1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := oneOf(at.Child("type"), p.Type, v1.SeccompProfileTypeUnconfined,
		v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost)
	file := at.Child("localhostProfile")
	switch {
	case p.Type != v1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		errs = append(errs, field.Forbidden(file, "needs type Localhost"))
	case p.Type != v1.SeccompProfileTypeLocalhost:
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		errs = append(errs, field.Required(file, "type Localhost needs it"))
	default:
		errs = append(errs, validateInside(file, *p.LocalhostProfile)...)
	}
	return errs
}

// validateInside wants a relative path that does not leave where it starts.
func validateInside(at *field.Path, p string) field.ErrorList {
	switch {
	case path.IsAbs(p):
		return field.ErrorList{field.Invalid(at, p, "must be a relative path")}
	case slices.Contains(strings.Split(p, "/"), ".."):
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	default:
		return nil
	}
}

func validateSysctls(sysctls []v1.Sysctl, at *field.Path) field.ErrorList {
	// Segments of lower case letters, digits, dashes and underscores between dots or slashes.
	const segment = `[a-z0-9]([-_a-z0-9]*[a-z0-9])?`
	form := regexp.MustCompile("^" + segment + "([./]" + segment + ")*$")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, sysctl := range sysctls {
		at := at.Index(i).Child("name")
		name := strings.ReplaceAll(sysctl.Name, "/", ".")
		switch {
		case !form.MatchString(sysctl.Name) || len(sysctl.Name) > 253:
			errs = append(errs, field.Invalid(at, sysctl.Name,
				"must be the name of a sysctl, such as net.core.somaxconn"))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, sysctl.Name))
		}
		seen[name] = true
	}
	return errs
}
