//! The command line and the environment go before the file.

use std::collections::BTreeSet;

use clap::ArgMatches;
use clap::parser::ValueSource;

/// The names of the arguments that were given, on the command line or in the environment, as opposed to their defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given(BTreeSet<String>);

impl Given {
    /// From what clap found.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let given = |id: &&clap::Id| {
            matches!(matches.value_source(id.as_str()), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
        Given(matches.ids().filter(given).map(ToString::to_string).collect())
    }

    /// Whether this one was.
    pub(crate) fn has(&self, argument: &str) -> bool {
        self.0.contains(argument)
    }
}

/// Gives a table of the configuration, whose fields are arguments as well, a way to let the arguments go before the file. Every field
/// is named, with the argument's name where that is another; the compiler sees to it that none is forgotten.
macro_rules! overridable {
    ($table:ident { $($field:ident $(= $argument:literal)?),* $(,)? }) => {
        impl $table {
            /// Takes over what was given.
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
