package aws

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	parameter "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"kamino.dev/kamino"
)

// ParameterName is the parameter that a pool's launch template names in place of an image. Groups
// of one Region have names of their own: that of the cluster is for policies.
func (p *Provider) ParameterName(pool kamino.Pool) string {
	return "/kamino/" + plain(cmp.Or(p.config.Cluster, pool.Group, "cluster")) + "/" + plain(pool.Name) + "/image"
}

// NextImage compares a pool's recipe, as it was read, with a target.
func (p *Provider) NextImage(ctx context.Context, pool kamino.Pool, want kamino.Target) (kamino.NextImage, error) {
	now, to, err := p.aim(ctx, pool, want)
	if err != nil {
		return kamino.NextImage{}, err
	}
	next := kamino.NextImage{Image: to.means()}
	if now.Image != to.Image {
		next.Diff = append(next.Diff, kamino.FieldChange{Field: "image of the launch template", From: now.Image, To: to.Image})
	}
	if to.Parameter != "" && (now.Parameter != to.Parameter || now.Value != to.Value) {
		next.Diff = append(next.Diff, kamino.FieldChange{Field: "parameter " + to.Parameter, From: now.means(), To: to.Value})
	}
	return next, nil
}

// aim is a pool's recipe, and what it shall be. To what a version of the template shall be, the
// number is 0 where there may be none yet. An image that is not made yet stands in it by its name.
// A group whose template names a parameter goes on doing so, whatever the reference; another comes
// to name one where that is asked for and can be.
func (p *Provider) aim(ctx context.Context, pool kamino.Pool, want kamino.Target) (now, to recipe, err error) {
	if err := json.Unmarshal(pool.Model.Saved, &now); err != nil || now.Template == "" {
		return now, to, fmt.Errorf("pool %s has no launch template that Kamino could write: %w", pool.Name, kamino.ErrUnsupported)
	}
	if want.Former != nil {
		to, err = p.restored(ctx, pool, now, want.Former)
		return now, to, err
	}
	if want.Version == "" {
		return now, to, fmt.Errorf("no image wanted for pool %s", pool.Name)
	}
	id := p.known.imageOf(imageName(pool, want.Version))
	if id == "" {
		id = imageName(pool, want.Version)
		im, err := p.image(ctx, pool, want.Version)
		if err == nil {
			id = text(im.ImageId)
		} else if !errors.Is(err, kamino.ErrNotFound) {
			return now, to, err
		}
	}
	to = recipe{Template: now.Template, Named: now.Named, Image: id}
	if points := want.Reference == kamino.ByPointer || want.Reference == kamino.ByDefinition; now.Parameter != "" || points &&
		now.noPointer() == "" {
		to.Parameter, to.Value = cmp.Or(now.Parameter, p.ParameterName(pool)), id
		to.Image = resolvePrefix + to.Parameter
	}
	return now, to, nil
}

// restored is a pool's present recipe with the image of a saved one. Nothing else of the saved
// recipe is written: its template and its parameter may belong to another group now, and what
// people have changed of the template since stays. A template that Kamino moved to its own
// parameter names an image again if it did so before.
func (p *Provider) restored(ctx context.Context, pool kamino.Pool, now recipe, saved json.RawMessage) (to recipe, err error) {
	var former recipe
	if err := json.Unmarshal(saved, &former); err != nil || former.means() == "" {
		return to, fmt.Errorf("the saved recipe of pool %s is not a recipe of this provider", pool.Name)
	}
	if err := p.canBoot(ctx, pool, former.means(), now.means()); err != nil {
		return to, err
	}
	to = now
	if now.Parameter == "" || former.Parameter == "" && now.Parameter == p.ParameterName(pool) && now.Named != byLatest {
		to.Parameter, to.Value, to.Image = "", "", former.means()
	} else {
		to.Value = former.means()
	}
	to.Version = 0
	if to.Image == former.Image && to.Template == former.Template {
		to.Version, err = p.sameVersion(ctx, now, former.Version)
	}
	return to, err
}

// sameVersion is a version of a pool's template if that differs from the present version in its
// image only; 0 where it does not, or is gone.
func (p *Provider) sameVersion(ctx context.Context, now recipe, number int64) (int64, error) {
	present, err := p.version(ctx, now.Template, strconv.FormatInt(now.Version, 10))
	if err != nil {
		return 0, err
	}
	old, err := p.version(ctx, now.Template, strconv.FormatInt(number, 10))
	if errors.Is(err, kamino.ErrNotFound) || err == nil && differs(*present.LaunchTemplateData, *old.LaunchTemplateData) != "" {
		return 0, nil
	}
	return number, err
}

// canBoot returns an error with a hint if an image does not exist, or is for other machines than
// the image that the pool boots from now.
func (p *Provider) canBoot(ctx context.Context, pool kamino.Pool, id, now string) error {
	if id == now {
		return nil
	}
	im, err := p.imageByID(ctx, id)
	if errors.Is(err, kamino.ErrNotFound) {
		return kamino.WithHint(fmt.Errorf("roll pool %s back to image %s: %w", pool.Name, id, err),
			"choose a version with: kamino rollback --pool %s --to VERSION", pool.Name)
	} else if err != nil {
		return err
	}
	present, err := p.imageByID(ctx, now)
	if errors.Is(err, kamino.ErrNotFound) {
		return nil // nothing tells for which machines it was
	} else if err != nil {
		return err
	}
	if why := versionArtifact(im).Machine.Unlike(versionArtifact(present).Machine); why != "" {
		return kamino.WithHint(fmt.Errorf("roll pool %s back to image %s: %s: %w", pool.Name, id, why, kamino.ErrUnsupported),
			"if the pool is to boot from it, change instance type and image in the launch template; else choose a version with: kamino rollback --pool %s --to VERSION", pool.Name)
	}
	return nil
}

// Promote writes the parameter, or makes a version of the template and puts it in effect. Versions
// that are made and not put in effect do nothing.
func (p *Provider) Promote(ctx context.Context, pool kamino.Pool, want kamino.Target) error {
	g, fresh, err := p.unchangedPool(ctx, pool)
	if err != nil {
		return fmt.Errorf("promote an image in pool %s: %w", pool.Name, err)
	}
	now, to, err := p.aim(ctx, fresh, want)
	if err != nil {
		return err
	}
	if want.Former == nil && !strings.HasPrefix(to.means(), "ami-") {
		return fmt.Errorf("image version %s of pool %s: %w", want.Version, pool.Name, kamino.ErrNotFound)
	}
	same := now.Image == to.Image && (to.Parameter == "" || now.Value == to.Value)
	if want.Offers() {
		if same || want.Reference == kamino.ByDefinition {
			return p.offer(ctx, pool, *want.Seen)
		}
		if err := p.unchanged(ctx, pool, *want.Seen); err != nil {
			return err
		}
	}
	if to.Parameter != "" && (now.Value != to.Value || now.Parameter != to.Parameter) {
		if err := p.point(ctx, to); err != nil {
			return err
		}
	}
	if now.Image == to.Image {
		return nil
	}
	if now.Named == byLatest {
		return fmt.Errorf("promote an image in pool %s, which launches the latest version of its template: %w", pool.Name,
			kamino.ErrUnsupported)
	}
	if to.Version == 0 {
		if to.Version, err = p.makeVersion(ctx, now, to.Image); err != nil {
			return err
		}
		// No write of a template or a group takes a condition: the read in its place comes last.
		if g, _, err = p.unchangedPool(ctx, fresh); err != nil {
			return fmt.Errorf("put version %d of the template of pool %s in effect: %w", to.Version, pool.Name, err)
		}
	}
	return p.takeEffect(ctx, pool, g, to)
}

// point writes the parameter. EC2 resolves it only with that data type; SSM looks for the image
// afterwards, so that the value counts once it is read back.
func (p *Provider) point(ctx context.Context, to recipe) error {
	_, err := p.ssm.PutParameter(ctx, &ssm.PutParameterInput{Name: &to.Parameter, Value: &to.Value, Type: parameter.ParameterTypeString,
		DataType: sdk.String("aws:ec2:image"), Overwrite: sdk.Bool(true)})
	return translate(err, "write image %s to parameter %s", to.Value, to.Parameter)
}

// makeVersion makes a version of a template that differs from the present one in its image only.
func (p *Provider) makeVersion(ctx context.Context, from recipe, image string) (int64, error) {
	source := strconv.FormatInt(from.Version, 10)
	out, err := p.ec2.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{
		LaunchTemplateId: &from.Template, SourceVersion: &source, VersionDescription: sdk.String(madeBy + image),
		LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: &image},
		ClientToken:        sdk.String(digest(from.Template, source, image)),
	})
	what := "make a version of launch template " + from.Template + " with image " + image
	if err != nil {
		return 0, translate(err, "%s", what)
	}
	if out.Warning != nil && len(out.Warning.Errors) > 0 {
		return 0, fmt.Errorf("%s: %s: %s", what, kamino.Plain(text(out.Warning.Errors[0].Code)),
			kamino.Plain(text(out.Warning.Errors[0].Message)))
	}
	old, err := p.version(ctx, from.Template, source)
	if err != nil {
		return 0, err
	}
	made := out.LaunchTemplateVersion
	if made == nil || made.LaunchTemplateData == nil {
		return 0, fmt.Errorf("%s: empty answer: %w", what, kamino.ErrUnavailable)
	}
	if field := differs(*old.LaunchTemplateData, *made.LaunchTemplateData); field != "" {
		return 0, kamino.WithHint(fmt.Errorf("%s: version %d differs from version %s in %s, too; it was not put in effect", what,
			sdk.ToInt64(made.VersionNumber), source, field),
			"let the template name a parameter of data type aws:ec2:image: no version of it has to be made then")
	}
	p.known.keepVersion(from.Template, strconv.FormatInt(sdk.ToInt64(made.VersionNumber), 10), *made)
	return sdk.ToInt64(made.VersionNumber), nil
}

// differs names the first field by name, the image aside, in which two versions differ; "" where
// none does. EC2 drops snapshot IDs of inherited block device mappings.
func differs(a, b types.ResponseLaunchTemplateData) string {
	a.ImageId, b.ImageId = nil, nil
	var x, y map[string]json.RawMessage
	for from, to := range map[*types.ResponseLaunchTemplateData]*map[string]json.RawMessage{&a: &x, &b: &y} {
		raw, err := json.Marshal(from)
		if err != nil || json.Unmarshal(raw, to) != nil {
			return "what cannot be compared"
		}
	}
	for _, field := range slices.Sorted(maps.Keys(x)) {
		if string(x[field]) != string(y[field]) {
			return field
		}
	}
	return ""
}

// takeEffect puts a version in effect as the group names its template.
func (p *Provider) takeEffect(ctx context.Context, pool kamino.Pool, g group, to recipe) error {
	number := strconv.FormatInt(to.Version, 10)
	spec := specification(g.AutoScalingGroup)
	if spec == nil {
		return fmt.Errorf("promote an image in pool %s: it has no launch template any more: %w", pool.Name, kamino.ErrConflict)
	}
	if named := text(spec.Version); named == "" || named == byDefault {
		_, err := p.ec2.ModifyLaunchTemplate(ctx, &ec2.ModifyLaunchTemplateInput{LaunchTemplateId: &to.Template, DefaultVersion: &number})
		return translate(err, "make version %s the default of launch template %s", number, to.Template)
	}
	update := &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: g.AutoScalingGroupName}
	wanted := &scaling.LaunchTemplateSpecification{LaunchTemplateId: &to.Template, Version: &number} // ID and name together are refused
	if g.MixedInstancesPolicy != nil {
		update.MixedInstancesPolicy = g.MixedInstancesPolicy // whole, as read: what is left out may be reset
		update.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification = wanted
	} else {
		update.LaunchTemplate = wanted
	}
	_, err := p.scaling.UpdateAutoScalingGroup(ctx, update)
	return translate(err, "let Auto Scaling group %s launch from version %s", text(g.AutoScalingGroupName), number)
}
