package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
)

// builtinImage is the image of the seal pod, NAME@sha256:DIGEST. A release sets it (-ldflags "-X
// main.builtinImage=…").
var builtinImage string

// pinnedImage matches an image by digest
// (https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests). The seal pod is
// root on the donor, so its program must not depend on who may move a tag.
var pinnedImage = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)

func checkPinned(image string) error {
	if pinnedImage.MatchString(image) {
		return nil
	}
	return kamino.WithHint(fmt.Errorf("image %q is not pinned by a digest: the seal pod runs it as root on the donor", image),
		"use --image NAME@sha256:DIGEST; the push of an image prints its digest, and so does: docker buildx imagetools inspect %s", image)
}

// needImage makes sure, before anything is touched, that a donor can be sealed. It uses --image or
// $POD_IMAGE, else the image that a release built in, else the image of this pod, else the only
// image that the cluster admits.
func (a *app) needImage(ctx context.Context, dryRun bool) error {
	g := &a.global
	g.SealImage = cmp.Or(g.SealImage, a.env("POD_IMAGE"), builtinImage)
	if g.SealImage == "" && a.env("KUBERNETES_SERVICE_HOST") != "" {
		if err := a.ownImage(ctx); err != nil && !dryRun {
			return err
		}
	}
	if g.SealImage == "" {
		a.listedImage(ctx)
	}
	switch {
	case g.SealImage != "":
		return checkPinned(g.SealImage)
	case dryRun:
		return nil // the plan has the refusal
	}
	return kube.ErrNoSealImage
}

// runningImage is a cluster that knows which image a pod runs.
type runningImage interface {
	RunningImage(ctx context.Context, namespace, pod string) (string, error)
}

// ownImage uses the image that this pod runs.
func (a *app) ownImage(ctx context.Context) error {
	c, err := a.cluster(ctx, a)
	if err != nil {
		return err
	}
	namespace, pod := a.env("POD_NAMESPACE"), cmp.Or(a.env("POD_NAME"), a.env("HOSTNAME"))
	if r, ok := c.(runningImage); ok && namespace != "" && pod != "" {
		if a.global.SealImage, err = r.RunningImage(ctx, namespace, pod); err != nil {
			return kamino.WithHint(fmt.Errorf("find the image of this pod: %w", err), "name the image with --image NAME@sha256:DIGEST")
		}
	}
	return nil
}

// listedImage uses the image that may seal disks, if the cluster lists exactly one. A list that
// cannot be read counts as empty.
func (a *app) listedImage(ctx context.Context) {
	c, err := a.cluster(ctx, a)
	if err != nil {
		return
	}
	if list, ok := c.(interface {
		SealImages(ctx context.Context) (images []string, release string, err error)
	}); ok {
		if images, _, err := list.SealImages(ctx); err == nil && len(images) == 1 {
			a.global.SealImage = images[0]
		}
	}
}

// refuse ends a command whose run cannot begin. As every such run, it first restores what an
// earlier run left, if it can; a live run is left alone.
func (a *app) refuse(ctx context.Context, cause error, dryRun bool, giveBack func(*engine.Engine) error) error {
	if dryRun {
		return cause
	}
	eng, err := a.engine(ctx)
	if err != nil {
		return cause
	}
	finish := a.follow(ctx, eng)
	err = giveBack(eng)
	finish()
	if err != nil && !refused(err) {
		return errors.Join(cause, err)
	}
	return cause
}
