// Command packaging makes what is released of built programs: packages, images, a list of what each
// program is made of, and the licences of that. cmd/packaging/dist.sh calls it. The same input gives the
// same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// release holds what all parts of a release have in common.
type release struct {
	version string    // 0.1.0, or 0.1.0~git20261130.47f44dcf3b0b before it
	time    time.Time // of the commit
	arch    string    // as Go names it
	out     string    // the folder of the results
}

const usage = "use packaging FLAGS packages STAGE | sbom PROGRAM... | notices FILE PROGRAM... | " +
	"image gpu|eni PROGRAM"

func run(args []string) error {
	var r release
	var epoch int64
	flags := flag.NewFlagSet("packaging", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "the version")
	flags.Int64Var(&epoch, "epoch", 0, "the time of all files, in seconds since 1970")
	flags.StringVar(&r.arch, "arch", "amd64", "the architecture, as Go names it")
	flags.StringVar(&r.out, "out", "dist", "the folder of the results")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r.time = time.Unix(epoch, 0).UTC()
	what, words := flags.Arg(0), flags.Args()
	if r.version == "" || len(words) < 2 {
		return errors.New(usage)
	}
	switch words = words[1:]; what {
	case "packages":
		return r.packages(words[0])
	case "sbom":
		return each(words, r.sbom)
	case "notices":
		return notices(words[0], words[1:])
	case "image":
		if len(words) == 2 {
			return r.image(words[0], words[1])
		}
	}
	return errors.New(usage)
}

func each(all []string, do func(string) error) error {
	for _, one := range all {
		if err := do(one); err != nil {
			return err
		}
	}
	return nil
}

// file names a result: name-version-arch with an end.
func (r release) file(name, end string) string {
	return strings.Join([]string{name, r.version, r.arch}, "_") + end
}
