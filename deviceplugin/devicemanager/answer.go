package devicemanager

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/numalet/numalet/internal/oneline"
)

// AnswerFlaws describes, for people, what container runtimes refuse or lose in an answer to
// Allocate for one container.
func AnswerFlaws(a *v1beta1.ContainerAllocateResponse) (flaws []string) {
	say := func(format string, args ...any) { flaws = append(flaws, fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(a.GetEnvs())) {
		value := a.GetEnvs()[name]
		switch {
		case name == "" || name[0] == '=':
			say("the variable %q has no name", name+"="+oneline.Cut(value, mostOfValue))
		case strings.ContainsRune(name, 0) || strings.ContainsRune(value, 0):
			say("the variable %q has a NUL in it", oneline.Cut(name, mostOfValue))
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
		if filepath.Clean(m.GetContainerPath()) == "/" {
			say("the mount of %q on / takes the place of the container's image", m.GetHostPath())
		}
	}
	for _, d := range a.GetDevices() {
		place("device", d.GetHostPath(), d.GetContainerPath())
		if d.GetPermissions() == "" {
			say("device %s has no permissions", d.GetHostPath())
		}
	}
	for _, d := range a.GetCdiDevices() {
		if _, _, _, err := parser.ParseQualifiedName(d.GetName()); err != nil {
			say("the CDI device %q is not named like vendor.com/class=name: %v", d.GetName(), err)
		}
	}
	return flaws
}

// mostOfValue bounds what is shown of a variable.
const mostOfValue = 64

// AnswerOddities describes, for people, what in an answer to Allocate containers get otherwise than
// it was probably meant. Runtimes start them.
func AnswerOddities(a *v1beta1.ContainerAllocateResponse) (odd []string) {
	for _, name := range slices.Sorted(maps.Keys(a.GetEnvs())) {
		if before, after, cut := strings.Cut(name, "="); cut && before != "" {
			odd = append(odd, fmt.Sprintf("the variable %q arrives as %s with the value %q", name, before,
				oneline.Cut(after+"="+a.GetEnvs()[name], mostOfValue)))
		}
	}
	for _, d := range a.GetDevices() {
		if strings.Trim(d.GetPermissions(), "rwm") != "" {
			odd = append(odd, fmt.Sprintf("the permissions %q of device %s are not of the letters r, w "+
				"and m", d.GetPermissions(), d.GetHostPath()))
		}
	}
	return odd
}

// NamedIn returns the host paths and CDI devices of an answer that occur in text, such as the error
// of a runtime that could not create the container.
func NamedIn(text string, a *v1beta1.ContainerAllocateResponse) (named []string) {
	say := func(what, name string) {
		if one := fmt.Sprintf("%s %q", what, name); names(text, name) && !slices.Contains(named, one) {
			named = append(named, one)
		}
	}
	for _, d := range a.GetDevices() {
		say("the device", d.GetHostPath())
	}
	for _, m := range a.GetMounts() {
		say("the mount of", m.GetHostPath())
	}
	for _, d := range a.GetCdiDevices() {
		say("the CDI device", d.GetName())
	}
	return named
}

// names reports whether text contains name, and not only inside a longer name.
func names(text, name string) bool {
	for rest := text; len(name) > 1; {
		at := strings.Index(rest, name)
		if at < 0 {
			return false
		}
		after, _ := utf8.DecodeRuneInString(rest[at+len(name):])
		before, _ := utf8.DecodeLastRuneInString(rest[:at])
		if !partOfName(before) && !partOfName(after) {
			return true
		}
		rest = rest[at+1:]
	}
	return false
}

func partOfName(r rune) bool {
	return unicode.IsLetter(r) && r != utf8.RuneError || unicode.IsDigit(r) || strings.ContainsRune("/-_", r)
}
