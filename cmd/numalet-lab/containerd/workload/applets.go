package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// streams are the standard streams of an applet.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// applets are the usual commands of a small image, so that users can look around in containers. They are
// links to this program in /bin, and know few flags or none.
var applets = map[string]func(s streams, args []string) (code int){
	"cat": cat, "echo": echo, "env": printEnv, "ls": ls, "sh": shell, "sleep": sleep,
	"true":  func(streams, []string) int { return 0 },
	"false": func(streams, []string) int { return 1 },
}

// Applets lists the names of the applets.
func Applets() []string {
	var names []string
	for name := range applets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Applet runs the applet of the name under which the program was called. False: there is none.
func Applet(called string, args []string) (code int, is bool) {
	do, is := applets[filepath.Base(called)]
	if !is {
		return 0, false
	}
	return do(streams{os.Stdin, os.Stdout, os.Stderr}, args), true
}

// fail says what went wrong, and returns the exit code for that.
func (s streams) fail(what string, err error) int {
	fmt.Fprintf(s.err, "%s: %v\n", what, err)
	return 1
}

func echo(s streams, args []string) int {
	fmt.Fprintln(s.out, strings.Join(args, " "))
	return 0
}

func printEnv(s streams, _ []string) int {
	for _, kv := range os.Environ() {
		fmt.Fprintln(s.out, kv)
	}
	return 0
}

func sleep(s streams, args []string) int {
	if len(args) != 1 {
		return s.fail("sleep", errors.New("give one time, such as 5 or 1m"))
	}
	if args[0] == "infinity" {
		args[0] = "1000000h"
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		d, err = time.ParseDuration(args[0] + "s")
	}
	if err != nil {
		return s.fail("sleep", err)
	}
	// As the first process of a container it would not be ended by SIGTERM otherwise.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	select {
	case <-ctx.Done():
		return 128 + int(syscall.SIGTERM)
	case <-time.After(d):
		return 0
	}
}

func cat(s streams, files []string) (code int) {
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if err := copyFile(s, name); err != nil {
			code = s.fail("cat", err)
		}
	}
	return code
}

func copyFile(s streams, name string) error {
	from := s.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	_, err := io.Copy(s.out, from)
	return err
}

// ls lists directories, one name a line: -l with mode, size and time, -a with hidden names.
func ls(s streams, args []string) (code int) {
	var long, all bool
	var dirs []string
	for _, arg := range args {
		if flags, is := strings.CutPrefix(arg, "-"); is {
			long, all = long || strings.Contains(flags, "l"), all || strings.Contains(flags, "a")
			continue
		}
		dirs = append(dirs, arg)
	}
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	for _, dir := range dirs {
		if err := list(s.out, dir, long, all); err != nil {
			code = s.fail("ls", err)
		}
	}
	return code
}

func list(out io.Writer, dir string, long, all bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		show(out, dir, info, long)
		return nil
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, infoErr := e.Info()
		if infoErr == nil && (all || !strings.HasPrefix(e.Name(), ".")) {
			show(out, filepath.Join(dir, e.Name()), info, long)
		}
	}
	return err
}

// show writes one name.
func show(out io.Writer, path string, info os.FileInfo, long bool) {
	if !long {
		fmt.Fprintln(out, info.Name())
		return
	}
	to := ""
	if target, err := os.Readlink(path); err == nil {
		to = " -> " + target
	}
	fmt.Fprintf(out, "%v %10d %s %s%s\n", info.Mode(), info.Size(), info.ModTime().Format("Jan _2 15:04"),
		info.Name(), to)
}

// shell runs -c COMMAND, a file, or what comes from the input; on a terminal it prompts.
func shell(s streams, args []string) int {
	script, name := s.in, "sh"
	var rest []string
	terminal, is := s.in.(*os.File)
	prompts := is && term.IsTerminal(int(terminal.Fd()))
	switch {
	case len(args) > 1 && args[0] == "-c":
		script, rest = strings.NewReader(args[1]), args[2:]
	case len(args) > 0 && args[0] != "-":
		f, err := os.Open(args[0])
		if err != nil {
			return s.fail("sh", err)
		}
		defer f.Close()
		script, name, rest = f, args[0], args[1:]
	case prompts:
	default: // the whole input is the script, and its commands have none
		all, err := io.ReadAll(s.in)
		if err != nil {
			return s.fail("sh", err)
		}
		script, s.in = bytes.NewReader(all), nil
	}
	runner, err := interp.New(interp.StdIO(s.in, s.out, s.err), interp.Params(append([]string{"--"}, rest...)...))
	if err != nil {
		return s.fail("sh", err)
	}
	parser := syntax.NewParser()
	if prompts && script == s.in {
		return prompt(s, parser, runner)
	}
	file, err := parser.Parse(script, name)
	if err != nil {
		s.fail("sh", err)
		return 2
	}
	return s.codeOf(runner.Run(context.Background(), file))
}

// prompt runs one line after the other.
func prompt(s streams, parser *syntax.Parser, runner *interp.Runner) (code int) {
	fmt.Fprint(s.out, "/ # ")
	err := parser.Interactive(s.in, func(statements []*syntax.Stmt) bool {
		if parser.Incomplete() {
			fmt.Fprint(s.out, "> ")
			return true
		}
		for _, statement := range statements {
			code = s.codeOf(runner.Run(context.Background(), statement))
			if runner.Exited() {
				return false
			}
		}
		fmt.Fprint(s.out, "/ # ")
		return true
	})
	if err != nil {
		return s.fail("sh", err)
	}
	return code
}

// codeOf returns the exit code of what was run.
func (s streams) codeOf(err error) int {
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	return s.fail("sh", err)
}
