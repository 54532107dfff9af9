package deviceplugin

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

// AnswerFlaws says, for people, what of an answer to Allocate for a container runtimes refuse or lose.
func AnswerFlaws(a *v1beta1.ContainerAllocateResponse) (flaws []string) {
	say := func(format string, args ...any) { flaws = append(flaws, fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(a.GetEnvs())) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			say("a variable has the name %q", name)
		}
	}
	places := map[string]bool{}
	place := func(what, host, container string) {
		if !filepath.IsAbs(host) {
			say("the host path %q of a %s is not absolute", host, what)
		}
		if !filepath.IsAbs(container) {
			say("the container path %q of a %s is not absolute", container, what)
		}
		if places[what+container] {
			say("two %ss have the container path %q, and one is lost", what, container)
		}
		places[what+container] = true
	}
	for _, m := range a.GetMounts() {
		place("mount", m.GetHostPath(), m.GetContainerPath())
	}
	for _, d := range a.GetDevices() {
		place("device", d.GetHostPath(), d.GetContainerPath())
		if d.GetPermissions() == "" || strings.Trim(d.GetPermissions(), "rwm") != "" {
			say("the permissions %q of device %s are not of the letters r, w and m",
				d.GetPermissions(), d.GetHostPath())
		}
	}
	for _, d := range a.GetCdiDevices() {
		if _, _, _, err := parser.ParseQualifiedName(d.GetName()); err != nil {
			say("the CDI device %q is not named like vendor.com/class=name: %v", d.GetName(), err)
		}
	}
	return flaws
}
