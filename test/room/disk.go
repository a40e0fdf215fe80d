//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// inside is set in the process that has a mount namespace of its own: what it mounts goes
// with it, however it ends.
const inside = "STARLING_ROOM_INSIDE"

// enter runs this command again in a mount namespace of its own, and returns its exit code.
func enter() (int, error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	if e := new(exec.ExitError); errors.As(err, &e) {
		return e.ExitCode(), nil
	}
	return 0, err
}

// mount makes a file system of a size in bytes at dir, which it makes: "ext4" in a file
// beside it, for root alone, or "tmpfs".
func mount(kind, dir string, size int64) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if kind == "tmpfs" {
		return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	}
	image := dir + ".image"
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"mkfs." + kind, "-q", "-m", "0", image}, // no blocks for root alone
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command[0], err, out)
		}
	}
	return os.Chmod(dir, 0o700)
}

// A ballast fills a disk to the last block, and takes what becomes free meanwhile.
type ballast struct {
	file *os.File
	stop chan struct{}
	done chan struct{}
	size int64
}

func fill(dir string) (*ballast, error) {
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return nil, err
	}
	b := &ballast{file: f, stop: make(chan struct{}), done: make(chan struct{})}
	b.grow()
	go func() {
		defer close(b.done)
		for {
			select {
			case <-b.stop:
				return
			case <-time.After(100 * time.Millisecond):
				b.grow()
			}
		}
	}()
	return b, nil
}

// grow writes until there is no room, in blocks and then in bytes of a block.
func (b *ballast) grow() {
	for size := 1 << 20; size >= 1; size /= 16 {
		block := make([]byte, size)
		for {
			n, err := b.file.Write(block)
			b.size += int64(n)
			if err != nil {
				break
			}
		}
	}
	b.file.Sync() // delayed allocation has its blocks
}

// remove makes room again.
func (b *ballast) remove() error {
	close(b.stop)
	<-b.done
	return errors.Join(b.file.Close(), os.Remove(b.file.Name()))
}

// free is how many bytes are free on the disk of dir.
func free(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return -1
	}
	return int64(s.Bavail) * s.Bsize
}
