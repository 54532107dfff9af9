// Package version says which build this is. The version is that of the Kubernetes libraries, since
// clients and the API server judge a node's kubelet by it, with the build of numalet behind the
// plus: v1.37.2+numalet.47f44dcf3b0b. Whatever names a version shows this one.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	kubernetes "k8s.io/component-base/version"
)

// build names the build where "make build" set it: a tag or a commit. Otherwise the toolchain
// knows.
var build string

// Get is the version of this binary.
func Get() version.Info {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		info = &debug.BuildInfo{}
	}
	return describe(build, info)
}

// describe is pure: name is the build's, or empty; the toolchain wrote info. The date
// is the commit's, so that the same commit gives the same binary.
func describe(name string, info *debug.BuildInfo) version.Info {
	v := version.Info{
		BuildDate: "1970-01-01T00:00:00Z",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.GitCommit = s.Value
		case "vcs.time":
			v.BuildDate = s.Value
		case "vcs.modified":
			v.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
	name = cmp.Or(name, buildName(v, info.Main.Version))
	v.GitVersion = kubernetesVersion(info.Deps) + "+numalet." + identifiers(name)
	numbers := strings.SplitN(strings.TrimPrefix(v.GitVersion, "v"), ".", 3)
	v.Major, v.Minor = numbers[0], numbers[1]
	return v
}

// commitShown is how much of a commit's name is shown, as by "make build".
const commitShown = 12

// buildName is the commit, or the version of a module that was installed.
func buildName(v version.Info, module string) string {
	switch {
	case v.GitCommit != "" && v.GitTreeState == "dirty":
		return v.GitCommit[:min(commitShown, len(v.GitCommit))] + "-dirty"
	case v.GitCommit != "":
		return v.GitCommit[:min(commitShown, len(v.GitCommit))]
	case module != "" && module != "(devel)":
		return module
	}
	return "unknown"
}

// kubernetesVersion is v1.x.y where the libraries are v0.x.y.
func kubernetesVersion(deps []*debug.Module) string {
	for _, d := range deps {
		if d.Path != "k8s.io/component-base" {
			continue
		}
		if d.Replace != nil {
			d = d.Replace
		}
		if rest, ok := strings.CutPrefix(d.Version, "v0."); ok {
			return "v1." + rest
		}
	}
	return "v" + kubernetes.DefaultKubeBinaryVersion + ".0"
}

// identifiers keeps what may be behind the plus of a semantic version.
func identifiers(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '-':
			return r
		}
		return '-'
	}, name)
}

// Short is the version as far as clients go by it, "1.37".
func Short() string {
	v := Get()
	return v.Major + "." + v.Minor
}
