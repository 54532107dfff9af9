package containerd

import (
	"debug/elf"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// libraries lists the files that a dynamically linked executable needs to run: its loader and the
// libraries that it loads. A static executable needs none.
func libraries(executable string) ([]string, error) {
	loader, err := loaderOf(executable)
	if err != nil {
		return nil, fmt.Errorf("read executable %s: %w", executable, err)
	}
	if loader == "" {
		return nil, nil
	}
	out, err := exec.Command(loader, "--list", executable).Output()
	if err != nil {
		return nil, fmt.Errorf("list the libraries of %s with %s: %w; build it with CGO_ENABLED=0, "+
			"then it needs none", executable, loader, err)
	}
	files := append(listed(string(out)), loader)
	slices.Sort(files)
	return slices.Compact(files), nil
}

// loaderOf returns the program that the kernel starts in place of the executable; "" if it is
// static.
func loaderOf(executable string) (string, error) {
	f, err := elf.Open(executable)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", nil
}

// listed returns the files in a loader's output: "NAME => FILE (ADDRESS)" or "FILE (ADDRESS)". The
// kernel's own library (vdso(7)) has no file.
func listed(text string) (files []string) {
	for line := range strings.Lines(text) {
		if i := slices.IndexFunc(strings.Fields(line), filepath.IsAbs); i >= 0 {
			files = append(files, strings.Fields(line)[i])
		}
	}
	return files
}
