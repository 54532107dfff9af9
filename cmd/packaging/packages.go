package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// parcel is a package of one program.
type parcel struct {
	name, short, long string
	agent             bool // it has a unit
	linked            bool // it needs a C library
}

func parcels() []parcel {
	return []parcel{
		{
			name: "numalet", agent: true, short: "Kubernetes node agent for hardware with a topology",
			long: "It takes the kubelet's flags, configuration file, sockets and files, hands out\n" +
				"exclusive CPUs, memory and devices of one NUMA node, and says why when it cannot.",
		},
		{
			name: "numalet-lab", short: "playgrounds, benchmarks and simulators for numalet",
			long: "It has the commands of numalet that a node does not need, and the device plugin\n" +
				"for network interfaces.",
		},
		{
			name: "numalet-gpu", linked: true, short: "device plugin for NVIDIA GPUs",
			long: "It offers a node's GPUs to numalet or to the kubelet, as devices or to resource claims.",
		},
	}
}

// packages makes a .deb and a .rpm of each program. What each installs is in a folder of stage that has
// the program's name.
func (r release) packages(stage string) error {
	for _, p := range parcels() {
		for _, kind := range []string{"deb", "rpm"} {
			if err := r.pack(kind, p, filepath.Join(stage, p.name)); err != nil {
				return fmt.Errorf("make the %s of %s: %w", kind, p.name, err)
			}
		}
	}
	return nil
}

func (r release) pack(kind string, p parcel, tree string) error {
	info := nfpm.WithDefaults(r.describe(p, kind))
	info.Contents = append(info.Contents, &files.Content{
		Source: filepath.Join(tree, "usr"), Destination: "/usr", Type: files.TypeTree,
		FileInfo: &files.ContentFileInfo{MTime: r.time},
	})
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return err
	}
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := packager.Package(info, out); err != nil {
		return err
	}
	return out.Close()
}

// describe returns all of a package but the tree of its files.
func (r release) describe(p parcel, kind string) *nfpm.Info {
	info := &nfpm.Info{
		Name: p.name, Arch: r.arch, Platform: "linux", Version: r.version, VersionSchema: "none",
		Release: "1", Section: "admin", Priority: "optional", Vendor: "numalet",
		Maintainer:  "The numalet authors <numalet@users.noreply.github.com>",
		Description: p.short + "\n" + p.long, Homepage: "https://github.com/numalet/numalet",
		License: "Apache-2.0", MTime: r.time,
	}
	info.RPM.BuildHost, info.RPM.Group = "localhost", "System/Base"
	if p.linked {
		info.Depends = []string{map[string]string{"deb": "libc6", "rpm": "glibc"}[kind]}
	}
	if !p.agent {
		return info
	}
	info.Suggests = []string{"numalet-lab", "numalet-gpu"}
	info.Contents = files.Contents{
		{
			Source: "cmd/packaging/systemd/numalet.default", Destination: "/etc/default/numalet",
			Type:     files.TypeConfigNoReplace,
			FileInfo: &files.ContentFileInfo{Mode: 0o644, MTime: r.time},
		},
		{
			Destination: "/etc/systemd/system/numalet.service.d", Type: files.TypeDir,
			FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.time},
		},
	}
	info.Scripts = nfpm.Scripts{
		PostInstall: "cmd/packaging/scripts/postinstall.sh",
		PreRemove:   "cmd/packaging/scripts/preremove.sh",
		PostRemove:  "cmd/packaging/scripts/postremove.sh",
	}
	return info
}
