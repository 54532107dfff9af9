package selinux

import (
	goselinux "github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	v1 "k8s.io/api/core/v1"
)

// ThisHost is the host that the agent runs on.
func ThisHost() Host { return Host{Enabled: goselinux.GetEnabled, FileLabel: fileLabel} }

func fileLabel(o *v1.SELinuxOptions) (string, error) {
	var options []string
	for _, one := range []struct{ name, value string }{
		{"user", o.User}, {"role", o.Role}, {"type", o.Type}, {"level", o.Level},
	} {
		if one.value != "" {
			options = append(options, one.name+":"+one.value)
		}
	}
	if len(options) == 0 {
		return "", nil
	}
	process, file, err := label.InitLabels(options)
	if err != nil {
		return "", err
	}
	goselinux.ReleaseLabel(process) // the runtime reserves its levels itself
	return file, nil
}
