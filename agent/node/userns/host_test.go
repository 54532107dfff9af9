package userns

import (
	"strings"
	"testing"
)

func TestSubordinate(t *testing.T) {
	for _, tt := range []struct{ users, groups, want string }{
		{"0: kubelet 65536 7208960\n", "", ""},
		{"0: kubelet 65536 7208960\n", "0: kubelet 131072 7208960\n", "must be the same"},
		{"0: kubelet 65536 65536\n1: kubelet 262144 65536\n", "", "must be one range"},
		{"", "", "must be one range"},
		{"0: kubelet 1 7208960\n", "", "must begin at 65536"},
		{"0: kubelet 65536 7208961\n", "", "multiples of 65536"},
		{"0: kubelet 65536 65536\n", "", "for 110 pods"},
		{"0: kubelet 4294901760 131072\n", "", "more than there are"},
		{"0: kubelet x 131072\n", "", "invalid syntax"},
	} {
		if tt.groups == "" {
			tt.groups = tt.users
		}
		b, err := subordinate([]byte(tt.users), []byte(tt.groups), 65536, 110)
		switch {
		case tt.want == "" && (err != nil || b != Block{65536, 7208960}):
			t.Errorf("%q: %+v, %v", tt.users, b, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%q: %v, want %q", tt.users, err, tt.want)
		}
	}
}
