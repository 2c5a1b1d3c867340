//! Enums whose variants have names in logs, metrics or the configuration.

/// Defines an enum with the list of its variants and their names, so that the three always agree.
macro_rules! labels {
    ($(#[$meta:meta])* $vis:vis $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// All variants, in order.
            #[allow(dead_code, reason = "not every enum is listed")]
            pub(crate) const ALL: &[$name] = &[$($name::$variant),*];

            /// The name in logs, metrics and the configuration.
            pub(crate) fn label(self) -> &'static str {
                match self { $($name::$variant => $label),* }
            }
        }
    };
}
pub(crate) use labels;
