//! The Cargo features of this program: parts that a small image can leave out.

use std::sync::LazyLock;

/// Every feature of the crate, and whether this program has it.
const ALL: [(&str, bool); 4] = [
    ("acme", cfg!(feature = "acme")),
    ("import-nginx", cfg!(feature = "import-nginx")),
    ("otlp", cfg!(feature = "otlp")),
    ("top", cfg!(feature = "top")),
];

/// The features of this program, for `sealion --version`.
pub(crate) fn listed() -> &'static str {
    static LISTED: LazyLock<String> = LazyLock::new(|| {
        let present: Vec<&str> = ALL.iter().filter(|(_, present)| *present).map(|(name, _)| *name).collect();
        if present.is_empty() { "none".to_owned() } else { present.join(", ") }
    });
    &LISTED
}

/// The message for a feature that this program was built without. `instead`: an alternative for the operator.
#[cfg_attr(
    all(feature = "acme", feature = "import-nginx", feature = "otlp", feature = "top"),
    expect(dead_code, reason = "nothing is left out")
)]
pub(crate) fn left_out(feature: &str, instead: &str) -> String {
    format!(
        "this program was built without the feature `{feature}`: {instead}, or use a program that was built with it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_of_the_crate_is_listed() {
        let manifest: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
        let declared = manifest["features"].as_table().unwrap();
        let default: Vec<&str> =
            declared["default"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
        assert_eq!(default, ALL.map(|(name, _)| name));
        assert_eq!(declared.len(), ALL.len() + 1);
        assert!(ALL.iter().all(|(name, present)| listed().split(", ").any(|listed| listed == *name) == *present));
    }
}
