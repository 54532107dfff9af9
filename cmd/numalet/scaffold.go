package main

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/deviceplugin/scaffold"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// released is the version that new modules require if this program is no released one.
const released = "v0.1.0"

// newPluginNewCommand returns "numalet plugin new NAME".
func newPluginNewCommand() *cobra.Command {
	cmd := newModuleCommand(scaffold.Plugin, "resource",
		"resource of the plugin (example.com/NAME)")
	cmd.Short = "Write the source of a new device plugin, with a test and what deploys it"
	cmd.Long = `Write the source of a new device plugin into the directory NAME: a Go module that
builds, a test that puts it through "numalet plugin check", a DaemonSet, a script that
makes an image without a container engine, and a file for CI. make in it builds and
tests everything. Its devices are the files of a folder: put your hardware there.`
	cmd.Example = "  numalet plugin new widgets --resource vendor.com/widget && make -C widgets"
	return cmd
}

// newDriverCommand returns "numalet driver" with its subcommands.
func newDriverCommand() *cobra.Command {
	return cli.Group("driver", "Write a new driver of resource claims, or make a claim to check one",
		newDriverNewCommand(), newDriverClaimCommand())
}

// newDriverNewCommand returns "numalet driver new NAME".
func newDriverNewCommand() *cobra.Command {
	cmd := newModuleCommand(scaffold.Driver, "driver", "name of the driver (NAME.example.com)")
	cmd.Short = "Write the source of a new DRA driver, with a test and what deploys it"
	cmd.Long = `Write the source of a new driver of resource claims (DRA) into the directory NAME: a Go
module that builds, a test that puts it through "numalet plugin check --dra" without an
API server, a DaemonSet and a DeviceClass, a script that makes an image without a
container engine, and a file for CI. make in it builds and tests everything. Its devices
are the files of a folder: put your hardware there.`
	cmd.Example = "  numalet driver new widgets --driver widgets.vendor.com && make -C widgets"
	return cmd
}

// newModuleCommand returns a command that writes a module of that kind; serves is the flag for what it
// serves.
func newModuleCommand(kind scaffold.Kind, serves, help string) *cobra.Command {
	cfg := scaffold.Config{Kind: kind, Version: moduleVersion(), Go: goVersion()}
	cmd := &cobra.Command{
		Use: "new NAME",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("give the name of the new %s, such as widgets; it becomes a directory",
					kind)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Name = filepath.Base(args[0])
			return writeModule(cmd.OutOrStdout(), args[0], cfg)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Module, "module", "", "path of the Go module (example.com/NAME)")
	flags.StringVar(&cfg.Serves, serves, "", help)
	flags.StringVar(&cfg.Replace, "numalet", "",
		"directory with numalet's source to build with, in place of a released version")
	return cmd
}

func writeModule(out io.Writer, dir string, cfg scaffold.Config) error {
	paths, err := scaffold.Write(dir, cfg)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if _, err := fmt.Fprintln(out, filepath.Join(dir, path)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "Build and test it: make -C %s\n", dir)
	return err
}

// moduleVersion is the version of numalet's module with which this program was built.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || !strings.HasPrefix(info.Main.Version, "v") || strings.Contains(info.Main.Version, "+") {
		return released
	}
	return info.Main.Version
}

// goVersion is the version of Go with which this program was built, which is new enough for the kit.
func goVersion() string {
	major, minor := "1", "26"
	parts := strings.SplitN(strings.TrimPrefix(runtime.Version(), "go"), ".", 3)
	if len(parts) > 1 && parts[0] == major {
		minor = strings.TrimRight(parts[1], "abcdefghijklmnopqrstuvwxyz+-: ")
	}
	return major + "." + minor + ".0"
}
