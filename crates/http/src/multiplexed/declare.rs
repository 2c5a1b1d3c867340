//! Declarations that HTTP/2 and HTTP/3 make each from a list of their own.

/// Declares the type of error codes: its constants, their registered names, and how it is shown. Codes that are not registered keep their number.
#[macro_export]
macro_rules! error_codes {
    ($(#[$of:meta])* $type:ident($number:ty); $($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        $(#[$of])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(pub $number);

        impl $type {
            $($(#[$doc])* pub const $name: $type = $type($code);)*

            /// The registered codes, in order.
            pub const REGISTERED: &[$type] = &[$($type($code)),*];

            /// The registered name.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "error code {:#x}", self.0),
                }
            }
        }

        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Declares the limits against abuse, with their names for metrics and their reasons for the log.
#[macro_export]
macro_rules! floods {
    ($(#[$of:meta])* $type:ident; $($(#[$doc:meta])* $flood:ident = $name:literal, $why:literal,)*) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type { $($(#[$doc])* $flood,)* }

        impl $type {
            /// All limits, in order.
            pub const ALL: &[$type] = &[$($type::$flood),*];

            /// A name for metrics.
            pub fn name(self) -> &'static str {
                match self { $($type::$flood => $name),* }
            }

            const fn why(self) -> &'static str {
                match self { $($type::$flood => $why),* }
            }
        }
    };
}
