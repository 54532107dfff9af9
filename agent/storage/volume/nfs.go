package volume

import (
	"context"
	"net/netip"
	"time"
)

// nfs are exports of a server, mounted by mount(8) and its helper mount.nfs. The server decides who
// owns the files: fsGroup changes nothing.
func nfs() plugin {
	return plugin{from: inPods | byPVCs, field: "nfs", name: "kubernetes.io/nfs",
		facts: func(u used) facts {
			// The PVC says whether a pod has it read-only, not the persistent volume.
			return facts{mounted: true, served: true, readOnly: u.pv == nil && u.volume.NFS.ReadOnly}
		},
		setUp: func(ctx context.Context, m *makers, t target) (time.Time, error) {
			return time.Time{}, m.foreign(ctx, t, func() error {
				if err := m.mountNFS(t); err != nil {
					return err
				}
				return t.markReady()
			})
		}}
}

func (f filesystems) mountNFS(t target) error {
	source := t.volume.NFS
	if t.pv != nil {
		source = t.pv.Spec.NFS
	}
	server := source.Server
	if ip, err := netip.ParseAddr(server); err == nil && ip.Is6() {
		server = "[" + server + "]"
	}
	return f.mountPod(t, server+":"+source.Path, "nfs")
}
