package manifest

import (
	"fmt"
	"math"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate checks those of the API's rules for new pods that the node relies on. The pod has its
// defaults. Errors have paths from the root of the pod.
func Validate(pod *v1.Pod, gates Gates) field.ErrorList {
	if errs := validateSize(pod, field.NewPath("spec")); len(errs) > 0 {
		return errs
	}
	meta := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true,
		apivalidation.NameIsDNSSubdomain, meta)
	validateUID(pod, place{meta.Child("uid"), &errs})
	spec := place{field.NewPath("spec"), &errs}
	volumes := validateVolumes(pod.Spec.Volumes, spec.child("volumes"))
	validateContainers(&pod.Spec, volumes, spec)
	validateHostPorts(&pod.Spec, spec)
	validateSpec(&pod.Spec, spec, gates)
	validateDNS(&pod.Spec, spec)
	validatePodSecurity(&pod.Spec, spec, gates)
	validateAmounts(pod.Spec.Overhead, spec.child("overhead"))
	if pod.Spec.Resources != nil {
		validateResources(pod.Spec.Resources, spec.child("resources"))
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return strings.Compare(a.Field, b.Field)
	})
	return errs
}

// SafeUID matches what is safe as the name of a directory and of a cgroup.
var SafeUID = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,126}[A-Za-z0-9])?$`)

// validateUID accepts only UIDs that are safe names of directories and cgroups.
func validateUID(pod *v1.Pod, at place) {
	if !SafeUID.MatchString(string(pod.UID)) {
		at.invalid(string(pod.UID),
			"must be letters, digits and dashes, at most 128; leave it out to have one made")
	}
}

func validateSpec(s *v1.PodSpec, at place, gates Gates) {
	oneOf(at.child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways,
		v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	at.child("terminationGracePeriodSeconds").between(*s.TerminationGracePeriodSeconds, 0,
		math.MaxInt64)
	if s.ActiveDeadlineSeconds != nil {
		at.child("activeDeadlineSeconds").between(*s.ActiveDeadlineSeconds, 1, math.MaxInt32)
	}
	for name, value := range map[string]string{"hostname": s.Hostname, "subdomain": s.Subdomain} {
		if value != "" {
			at.child(name).texts(value, validation.IsDNS1123Label(value))
		}
	}
	for name, value := range map[string]*string{
		"priorityClassName": &s.PriorityClassName, "runtimeClassName": s.RuntimeClassName,
	} {
		if value != nil && *value != "" {
			at.child(name).texts(*value, validation.IsDNS1123Subdomain(*value))
		}
	}
	// Only the system's own priority classes are above this.
	const highestUserPriority = 1000000000
	if p := s.Priority; p != nil && *p > highestUserPriority &&
		!strings.HasPrefix(s.PriorityClassName, "system-") {
		at.child("priority").forbid(fmt.Sprintf(
			"above %d needs priorityClassName system-node-critical or system-cluster-critical",
			highestUserPriority))
	}
	if len(s.EphemeralContainers) > 0 {
		at.child("ephemeralContainers").forbid("a new pod cannot have them")
	}
	if len(s.SchedulingGates) > 0 {
		at.child("schedulingGates").forbid("the pod is on its node already")
	}
	validateTolerations(s.Tolerations, at.child("tolerations"), gates.On(tolerationGate))
}

// tolerationGate lets tolerations compare numbers.
const tolerationGate = "TaintTolerationComparisonOperators"

func validateTolerations(tolerations []v1.Toleration, at place, compares bool) {
	operators := []v1.TolerationOperator{"", v1.TolerationOpEqual, v1.TolerationOpExists}
	if compares {
		operators = append(operators, v1.TolerationOpLt, v1.TolerationOpGt)
	}
	for i, t := range tolerations {
		at := at.index(i)
		oneOf(at.child("operator"), t.Operator, operators...)
		if compares && (t.Operator == v1.TolerationOpLt || t.Operator == v1.TolerationOpGt) {
			if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
				at.child("value").invalid(t.Value, "must be a whole number")
			}
		}
		oneOf(at.child("effect"), t.Effect, "", v1.TaintEffectNoSchedule,
			v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
		if t.Key == "" && t.Operator != v1.TolerationOpExists {
			at.child("operator").invalid(string(t.Operator), "must be Exists when key is empty")
		}
		if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
			at.child("effect").invalid(string(t.Effect),
				"must be NoExecute when tolerationSeconds is set")
		}
	}
}

func validateDNS(s *v1.PodSpec, at place) {
	oneOf(at.child("dnsPolicy"), s.DNSPolicy, v1.DNSClusterFirst, v1.DNSDefault,
		v1.DNSClusterFirstWithHostNet, v1.DNSNone)
	servers := at.child("dnsConfig", "nameservers")
	if s.DNSPolicy == v1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		servers.required("dnsPolicy None needs at least one")
	}
	if s.DNSConfig != nil {
		for i, ip := range s.DNSConfig.Nameservers {
			validateIP(servers.index(i), ip)
		}
		if n := len(s.DNSConfig.Nameservers); n > 3 {
			servers.tooMany(n, 3)
		}
	}
	for i, alias := range s.HostAliases {
		at := at.child("hostAliases").index(i)
		validateIP(at.child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			at.child("hostnames").index(j).texts(name, validation.IsDNS1123Subdomain(name))
		}
	}
}

func validateIP(at place, ip string) {
	if net.ParseIP(ip) == nil {
		at.invalid(ip, "must be an IP address")
	}
}

func validatePodSecurity(s *v1.PodSpec, at place, gates Gates) {
	if s.HostPID && s.ShareProcessNamespace != nil && *s.ShareProcessNamespace {
		at.child("shareProcessNamespace").forbid("cannot be true together with hostPID")
	}
	networks := s.HostNetwork && !gates.On("UserNamespacesHostNetworkSupport")
	if s.HostUsers != nil && !*s.HostUsers && (networks || s.HostPID || s.HostIPC) {
		at.child("hostUsers").forbid("cannot be false together with hostNetwork, hostPID or hostIPC")
	}
	sc, at := s.SecurityContext, at.child("securityContext")
	validateIDs(at, sc.RunAsUser, sc.RunAsGroup)
	if sc.FSGroup != nil {
		at.child("fsGroup").between(*sc.FSGroup, 0, math.MaxInt32)
	}
	for i, group := range sc.SupplementalGroups {
		at.child("supplementalGroups").index(i).between(group, 0, math.MaxInt32)
	}
	validateSeccomp(sc.SeccompProfile, at.child("seccompProfile"))
	validateSysctls(sc.Sysctls, at.child("sysctls"))
}

func validateIDs(at place, user, group *int64) {
	if user != nil {
		at.child("runAsUser").between(*user, 0, math.MaxInt32)
	}
	if group != nil {
		at.child("runAsGroup").between(*group, 0, math.MaxInt32)
	}
}

func validateSeccomp(p *v1.SeccompProfile, at place) {
	if p == nil {
		return
	}
	oneOf(at.child("type"), p.Type, v1.SeccompProfileTypeUnconfined,
		v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost)
	file := at.child("localhostProfile")
	switch {
	case p.Type != v1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		file.forbid("needs type Localhost")
	case p.Type != v1.SeccompProfileTypeLocalhost:
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		file.required("type Localhost needs it")
	default:
		validateInside(file, *p.LocalhostProfile)
	}
}

// validateInside requires a relative path that stays inside its start.
func validateInside(at place, p string) {
	switch {
	case path.IsAbs(p):
		at.invalid(p, "must be a relative path")
	case slices.Contains(strings.Split(p, "/"), ".."):
		at.invalid(p, "must not contain '..'")
	}
}

func validateSysctls(sysctls []v1.Sysctl, at place) {
	// Segments of lower case letters, digits, dashes and underscores between dots or slashes.
	const segment = `[a-z0-9]([-_a-z0-9]*[a-z0-9])?`
	form := regexp.MustCompile("^" + segment + "([./]" + segment + ")*$")
	seen := map[string]bool{}
	for i, sysctl := range sysctls {
		at := at.index(i).child("name")
		name := strings.ReplaceAll(sysctl.Name, "/", ".")
		switch {
		case !form.MatchString(sysctl.Name) || len(sysctl.Name) > 253:
			at.invalid(sysctl.Name, "must be the name of a sysctl, such as net.core.somaxconn")
		case seen[name]:
			at.duplicate(sysctl.Name)
		}
		seen[name] = true
	}
}
