package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/scratch"
)

// A check is made again whenever a watched file or a file of a watched folder changes, also after one
// that could not be made.
func TestCheckAgain(t *testing.T) {
	dir := scratch.Dir(t)
	file, folder := filepath.Join(dir, "plugin"), filepath.Join(dir, "folder")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out strings.Builder
	runs := 0
	good, err := again(ctx, []string{file, folder}, &out, func() (bool, error) {
		switch runs++; runs {
		case 1:
			return false, errors.Join(errors.New("it does not start"), os.WriteFile(file+".new", nil, 0o600),
				os.Rename(file+".new", file)) // as a linker does
		case 2:
			return false, os.WriteFile(filepath.Join(folder, "a"), nil, 0o600)
		default:
			cancel()
			return true, nil
		}
	})
	if runs != 3 || !good || err != nil || !strings.Contains(out.String(), "it does not start") {
		t.Errorf("%d runs, %t, %v: %s", runs, good, err, out.String())
	}
	_, err = again(t.Context(), []string{"/nowhere/plugin"}, &out, nil)
	if err == nil || !strings.Contains(err.Error(), "--watch") {
		t.Error(err)
	}
	wrong := errors.New("no")
	if _, err := again(t.Context(), nil, &out, func() (bool, error) { return false, wrong }); err != wrong {
		t.Errorf("without a path: %v", err)
	}
}
