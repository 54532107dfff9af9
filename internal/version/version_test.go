package version

import (
	"runtime/debug"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

func TestDescribe(t *testing.T) {
	libraries := []*debug.Module{
		{Path: "k8s.io/api", Version: "v0.36.1"},
		{Path: "k8s.io/component-base", Version: "v0.37.2"},
	}
	const revision = "47f44dcf3b0b48ae9fd08668c11390a1cd29a4db"
	checkout := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Deps: libraries, Main: debug.Module{Version: "v0.0.1-0.20261121200632-47f44dcf3b0b"},
			Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified},
				{Key: "vcs.time", Value: "2026-11-21T20:06:32Z"},
			},
		}
	}
	installed := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{Deps: libraries, Main: debug.Module{Version: version}}
	}
	tests := map[string]struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		"make build, a tag": {"v0.4.0", checkout("false"), "v1.37.2+numalet.v0.4.0"},
		"make build, a commit": {"47f44dcf3b0b-dirty", checkout("true"),
			"v1.37.2+numalet.47f44dcf3b0b-dirty"},
		"go build":          {"", checkout("false"), "v1.37.2+numalet.47f44dcf3b0b"},
		"go build, changed": {"", checkout("true"), "v1.37.2+numalet.47f44dcf3b0b-dirty"},
		"go install":        {"", installed("v0.4.0"), "v1.37.2+numalet.v0.4.0"},
		"go install of a commit": {"", installed("v0.0.1-0.20261121200632-47f44dcf3b0b+dirty"),
			"v1.37.2+numalet.v0.0.1-0.20261121200632-47f44dcf3b0b-dirty"},
		"no version control":    {"", installed("(devel)"), "v1.37.2+numalet.unknown"},
		"nothing is known":      {"", &debug.BuildInfo{}, "v1.37.0+numalet.unknown"},
		"a branch in the name":  {"fix/a_b~1", installed(""), "v1.37.2+numalet.fix-a-b-1"},
		"replaced, no version":  {"x", replaced(""), "v1.37.0+numalet.x"},
		"replaced by a version": {"x", replaced("v0.38.0-alpha.1"), "v1.38.0-alpha.1+numalet.x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := describe(tt.name, tt.info)
			if got.GitVersion != tt.want {
				t.Errorf("version %s, want %s", got.GitVersion, tt.want)
			}
			v, err := utilversion.ParseSemantic(got.GitVersion)
			if err != nil {
				t.Fatal(err)
			}
			if v.Major() != 1 || got.Major != "1" || v.Minor() < 37 {
				t.Errorf("major %s, minor %s of %s", got.Major, got.Minor, v)
			}
		})
	}
	got := describe("", checkout("true"))
	if got.GitCommit != revision || got.GitTreeState != "dirty" || got.Minor != "37" ||
		got.BuildDate != "2026-11-21T20:06:32Z" {
		t.Errorf("%#v", got)
	}
}

func replaced(version string) *debug.BuildInfo {
	return &debug.BuildInfo{Deps: []*debug.Module{
		{
			Path: "k8s.io/component-base", Version: "v0.37.2",
			Replace: &debug.Module{Version: version},
		},
	}}
}
