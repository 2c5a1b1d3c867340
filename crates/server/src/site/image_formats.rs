//! Images in the format that the client prefers (RFC 9110 §12.1): siblings beside the original, chosen by Accept.

use std::cmp::Reverse;

use schemars::JsonSchema;
use sealion_http::accept::{image_quality, names};
use sealion_http::path::SitePath;
use serde::{Deserialize, Serialize};

use crate::files::resolve::SiteFile;

/// A format that siblings of an image may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ImageFormat {
    Avif,
    Webp,
}

impl ImageFormat {
    const ALL: [ImageFormat; 2] = [ImageFormat::Avif, ImageFormat::Webp];

    /// Its subtype of `image/`, which is the extension of a sibling too.
    fn name(self) -> &'static str {
        match self {
            ImageFormat::Avif => "avif",
            ImageFormat::Webp => "webp",
        }
    }

    /// The path of the sibling of the image at this path: `/photo.jpg.avif` of `/photo.jpg`. The name keeps the extension of the original, as the
    /// names of compressed files do: `photo.jpg` and `photo.png` have siblings of their own, and rules for the original find them.
    pub(super) fn sibling_of(self, path: &SitePath<'_>) -> SitePath<'static> {
        path.with_extension(self.name())
    }
}

/// The type of the image `name`, without `image/`, if it may have siblings.
pub(super) fn subtype(name: &[u8]) -> Option<&'static str> {
    let extension = &name[name.iter().rposition(|octet| *octet == b'.')? + 1..];
    let is = |known: &(&str, &str)| known.0.as_bytes().eq_ignore_ascii_case(extension);
    ORIGINALS.iter().find(|known| is(known)).map(|(_, subtype)| *subtype)
}

/// The name of the image whose sibling `name` would be.
pub(super) fn original_of(name: &[u8]) -> Option<&[u8]> {
    let without = |format: ImageFormat| name.strip_suffix(format.name().as_bytes())?.strip_suffix(b".");
    ImageFormat::ALL.into_iter().find_map(without).filter(|original| subtype(original).is_some())
}

/// The formats of siblings that the client prefers to the original, best first. Only formats that Accept names: browsers say `*/*` of every
/// format that they cannot show. Among equals the order of `formats` decides.
pub(super) fn preferred(accept: Option<&[u8]>, formats: &[ImageFormat], original: &str) -> Vec<ImageFormat> {
    let Some(accept) = accept else { return Vec::new() };
    let quality = |format: ImageFormat| image_quality(accept, format.name());
    let of_original = image_quality(accept, original);
    let is_preferred =
        |format: &ImageFormat| names(accept, b"image", format.name().as_bytes()) && quality(*format) >= of_original;
    let mut chosen: Vec<_> = formats.iter().copied().filter(is_preferred).collect();
    // Stable.
    chosen.sort_by_key(|format| Reverse(quality(*format)));
    chosen
}

/// Whether `sibling` may be sent in place of `original`: it is not older and not empty, and their tags differ.
pub(super) fn is_fit(sibling: &SiteFile, original: &SiteFile) -> bool {
    sibling.len > 0 && !sibling.state().is_older_than(original.state()) && sibling.etag != original.etag
}

/// Extensions of images that may have siblings, and their subtypes.
const ORIGINALS: [(&str, &str); 7] = [
    ("jpg", "jpeg"),
    ("jpeg", "jpeg"),
    ("png", "png"),
    ("gif", "gif"),
    ("bmp", "bmp"),
    ("tif", "tiff"),
    ("tiff", "tiff"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_has_to_be_named_and_to_weigh_as_much_as_the_original() {
        use ImageFormat::{Avif, Webp};
        const CHROME: &str = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8";
        for (accept, formats, expected) in [
            (Some(CHROME), &[Avif, Webp][..], &[Avif, Webp][..]),
            (Some(CHROME), &[Webp, Avif], &[Webp, Avif]),
            (Some(CHROME), &[Webp], &[Webp]),
            (Some("image/webp,*/*"), &[Avif, Webp], &[Webp]),
            (Some("image/avif;q=0.8,image/webp,image/*;q=0.5"), &[Avif, Webp], &[Webp, Avif]),
            (Some("image/avif;q=0.5,image/jpeg"), &[Avif, Webp], &[]),
            (Some("image/avif;q=0,image/webp;q=0"), &[Avif, Webp], &[]),
            (Some("*/*"), &[Avif, Webp], &[]),
            (Some("image/*"), &[Avif, Webp], &[]),
            (None, &[Avif, Webp], &[]),
        ] {
            let got = preferred(accept.map(str::as_bytes), formats, "jpeg");
            assert_eq!(got, expected, "{accept:?} {formats:?}");
        }
    }

    #[test]
    fn names_of_siblings() {
        for (name, original) in [
            ("a/photo.jpg.avif", Some("a/photo.jpg")),
            ("photo.PNG.webp", Some("photo.PNG")),
            ("photo.avif", None),
            ("notes.txt.webp", None),
            ("photo.jpg", None),
            ("photo.jpg.webp.avif", None),
        ] {
            assert_eq!(original_of(name.as_bytes()), original.map(str::as_bytes), "{name}");
        }
        assert_eq!((subtype(b"a.d/x"), subtype(b"x.JPG"), subtype(b"x")), (None, Some("jpeg"), None));
    }
}
