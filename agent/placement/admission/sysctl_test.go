package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/topology"
)

func TestSysctls(t *testing.T) {
	check := handlers.Sysctls([]string{"kernel.msg*", "net.core.somaxconn"})
	for _, test := range []struct {
		sysctl           string
		hostNet, hostIPC bool
		want             string
	}{
		{sysctl: "net.ipv4.tcp_syncookies"},
		{sysctl: "net/ipv4/tcp_syncookies"},
		{sysctl: "net.ipv4.tcp_slow_start_after_idle"},
		{sysctl: "net.ipv4.tcp_notsent_lowat"},
		{sysctl: "kernel.msgmax"},
		{sysctl: "net.core.somaxconn"},
		{sysctl: "net.core.somaxconn2",
			want: `forbidden sysctl: "net.core.somaxconn2" not allowlisted`},
		{sysctl: "vm.swappiness", want: `forbidden sysctl: "vm.swappiness" not allowlisted`},
		{sysctl: "net.ipv4.tcp_syncookies", hostNet: true,
			want: `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled`},
		{sysctl: "kernel.shm_rmid_forced", hostIPC: true,
			want: `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled`},
		{sysctl: "kernel.shm_rmid_forced", hostNet: true},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{HostNetwork: test.hostNet, HostIPC: test.hostIPC,
			SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: test.sysctl, Value: "1"}}}}}
		got := ""
		if r := check(decide.Attempt{Demand: decide.DemandOf(pod, nil, topology.Rules{})}); r != nil {
			got = r.Message
			if r.Reason != "SysctlForbidden" {
				t.Errorf("%s: reason %s", test.sysctl, r.Reason)
			}
		}
		if got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
	if r := check(decide.Attempt{Demand: decide.DemandOf(&v1.Pod{}, nil, topology.Rules{})}); r != nil {
		t.Errorf("a pod without sysctls: %v", r)
	}
}
