package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes what a program is made of, as the toolchain recorded it in the program, in CycloneDX's JSON.
func (r release) sbom(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	name := filepath.Base(program)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: r.version,
			Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
			Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
			Properties: &[]cdx.Property{{Name: "cdx:gomod:toolchain", Value: info.GoVersion}},
		},
	}
	parts := []cdx.Component{{
		BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std",
		Version:    strings.TrimPrefix(info.GoVersion, "go"),
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	refs := []string{"std"}
	for _, m := range modules(info) {
		url := "pkg:golang/" + m.Path + "@" + m.Version
		parts = append(parts, cdx.Component{
			BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url,
			Properties: &[]cdx.Property{{Name: "go:sum", Value: m.Sum}},
		})
		refs = append(refs, url)
	}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: name, Dependencies: &refs}}
	out, err := os.Create(filepath.Join(r.out, r.file(name, ".cdx.json")))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return out.Close()
}

// modules returns the modules that a program is linked with, sorted, each as it was compiled.
func modules(info *debug.BuildInfo) []debug.Module {
	var out []debug.Module
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// licence matches the names of files that a module's licence may ask to be kept with what is made of it.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// notices writes the licences of all modules of the programs to a file. The modules are where Go keeps
// them, since the programs were compiled here.
func notices(file string, programs []string) error {
	all := map[string]debug.Module{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		for _, m := range modules(info) {
			all[m.Path+"@"+m.Version] = m
		}
	}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	cmd := exec.Command("go", append([]string{"mod", "download", "-json"}, names...)...)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	cmd.Stderr = os.Stderr
	listed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the modules: %w", err)
	}
	dirs := regexp.MustCompile(`"Dir": "([^"]+)"`).FindAllSubmatch(listed, -1)
	if len(dirs) != len(names) {
		return fmt.Errorf("%d of %d modules are on this machine", len(dirs), len(names))
	}
	var text bytes.Buffer
	text.WriteString("Licences of the modules that the programs are linked with.\n")
	for i, name := range names {
		if err := quote(&text, name, string(dirs[i][1])); err != nil {
			return err
		}
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// quote adds the licences of the module in dir.
func quote(text *bytes.Buffer, module, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licence.MatchString(e.Name()) {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(text, "\n======== %s: %s\n\n%s\n", module, e.Name(), bytes.TrimSpace(raw))
	}
	if !found {
		return fmt.Errorf("%s has no file with its licence", module)
	}
	return nil
}
