//! Precedence: the command line and the environment override the file.

use std::collections::BTreeSet;

use clap::ArgMatches;
use clap::parser::ValueSource;

/// The names of the arguments that were set on the command line or in the environment, not by their defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given(BTreeSet<String>);

impl Given {
    /// Collects the names from clap's matches.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let given = |id: &&clap::Id| {
            matches!(matches.value_source(id.as_str()), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
        Given(matches.ids().filter(given).map(ToString::to_string).collect())
    }

    /// Whether `argument` was set.
    pub(crate) fn has(&self, argument: &str) -> bool {
        self.0.contains(argument)
    }
}

/// Implements `override_by` for a configuration table whose fields are also arguments. Lists every field, with the
/// argument's name if it differs; a missing field does not compile.
macro_rules! overridable {
    ($table:ident { $($field:ident $(= $argument:literal)?),* $(,)? }) => {
        impl $table {
            /// Replaces the fields that were set as arguments.
            pub(crate) fn override_by(&mut self, arguments: &Self, given: &$crate::values::Given) {
                let Self { $($field),* } = arguments;
                $({
                    let argument = stringify!($field);
                    $(let argument = { let _ = argument; $argument };)?
                    if given.has(argument) {
                        self.$field = $field.clone();
                    }
                })*
            }
        }
    };
}
pub(crate) use overridable;
