package cri

import (
	"errors"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestParseEnvFile(t *testing.T) {
	const good = "# comment\n\n  A='x'\nB = 'y z'  \r\nEMPTY=''\n" +
		"MULTI='one\n#two\n\tthree'\nHASH='a # b = \"c\" \\n $D'\nA='last'"
	want := map[string]string{"A": "last", "B": "y z", "EMPTY": "", "MULTI": "one\n#two\n\tthree",
		"HASH": `a # b = "c" \n $D`}
	if got, err := parseEnvFile(good); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	for text, why := range map[string]string{
		"A=x":                   "line 1: it is not NAME='value'",
		`A="x"`:                 "line 1: it is not NAME='value'",
		"\nA":                   "line 2: it is not NAME='value'",
		"='x'":                  "line 1: it is not NAME='value'",
		"export A='x'":          "line 1: it is not NAME='value'",
		"A='x''y'":              "line 1: after the closing quote nothing may stand",
		"A='x'$B":               "line 1: after the closing quote nothing may stand",
		"A='x\ny' z\n":          "line 2: after the closing quote nothing may stand",
		"B='1'\nA='x\ny\nz":     "line 2: the value has no closing quote",
		"A='1\n2'\nB='3\n4'\n?": "line 5: it is not NAME='value'",
	} {
		if got, err := parseEnvFile(text); err == nil || err.Error() != why {
			t.Errorf("%q: %q, %v; want %s", text, got, err, why)
		}
	}
}

func FuzzParseEnvFile(f *testing.F) {
	f.Add("# c\nA='x\ny'\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseEnvFile(text)
		for name, value := range got {
			if err != nil || name == "" || strings.Contains(value, "'") ||
				!strings.Contains(text, value) {
				t.Errorf("%q: %q is %q, %v", text, name, value, err)
			}
		}
	})
}

func TestEnvOfFiles(t *testing.T) {
	files := func(volume, path string) ([]byte, error) {
		if volume == "v" && path == "p" {
			return []byte("K='value of $(A)'\n"), nil
		}
		return nil, errors.New("no such file")
	}
	for _, tt := range []struct {
		ref  v1.FileKeySelector
		want string // "=" and the value; "": not set; else the error
	}{
		{v1.FileKeySelector{VolumeName: "v", Path: "p", Key: "K"}, "=value of $(A)"},
		{v1.FileKeySelector{VolumeName: "v", Path: "p", Key: "L"},
			`environment variable key "L" not found in file "p"`},
		{v1.FileKeySelector{VolumeName: "v", Path: "p", Key: "L", Optional: ptr.To(true)}, ""},
		{v1.FileKeySelector{VolumeName: "v", Path: "q", Key: "K", Optional: ptr.To(true)},
			"couldn't parse env file: no such file"},
	} {
		c := &v1.Container{Env: []v1.EnvVar{{Name: "E", ValueFrom: &v1.EnvVarSource{FileKeyRef: &tt.ref}}}}
		envs, err := Env(&v1.Pod{}, c, ContainerOptions{File: files})
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case len(envs) == 1:
			got = "=" + string(envs[0].Value)
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want) || tt.want == "") {
			t.Errorf("%+v: %q, want %q", tt.ref, got, tt.want)
		}
	}
}
