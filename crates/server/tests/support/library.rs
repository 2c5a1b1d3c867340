//! The parts of the program's own library that tests use: every other module has them from here.
#![allow(unused_imports, reason = "the native and the guest tests use a part each")]

pub(crate) use sealion::path::costs::calibration::{Calibration, SetUpSpread, SuiteCosts, default_path};
pub(crate) use sealion::path::costs::curve::Point;
pub(crate) use sealion::path::costs::{Costs, display_bytes};
pub(crate) use sealion::reference;
