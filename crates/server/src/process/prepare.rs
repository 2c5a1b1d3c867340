//! The first part of a start: reads the configuration, probes the kernel and builds a generation, while every file can still be
//! opened.

use std::path::PathBuf;
use std::sync::Arc;

use sealion_ktls::probe;
use sealion_tls::OwnTicketKeys;

use super::build::{build, refuse_secrets_in_roots};
use super::descriptors::DescriptorPlan;
use crate::certificates::TlsProcess;
use crate::config::{Config, ServeArgs};
use crate::exchange::Generation;
use crate::listen::Inherited;
use crate::monitor;
use crate::observe::access_log::{AccessLogPlans, SiteLogs};
use crate::observe::messages;
use crate::observe::metrics::Metrics;
use crate::path::costs::Costs;
use crate::path::offer::KernelOffer;
use crate::path::policy::KtlsMode;
use crate::values::Problems;

/// The configuration and everything built from it. Only the metrics listener is bound.
pub(super) struct Prepared {
    pub config: Config,
    pub kernel: Arc<KernelOffer>,
    pub costs: Costs,
    pub metrics_listener: Option<monitor::Listener>,
    pub otlp: Option<monitor::Settings>,
    pub access_log: AccessLogPlans,
    pub tls: TlsProcess,
    pub generation: Generation,
    /// Directories that were made, to be given to the user that serves.
    pub made: Vec<PathBuf>,
    pub descriptors: DescriptorPlan,
    pub metrics: Metrics,
}

impl Prepared {
    /// Reads the configuration and builds everything from it. `tickets`: the ticket keys of the process before.
    ///
    /// # Errors
    /// A line for each problem, with the remedy.
    pub(super) fn new(
        args: &ServeArgs,
        inherited: &mut Inherited,
        tickets: Option<&OwnTicketKeys>,
    ) -> Result<Self, String> {
        // For errors of the file itself.
        messages::write_as(args.server.log_format);
        let (config, mut problems) = args.configuration().map_err(|problems| problems.to_string())?;
        messages::write_as(config.server.log_format);
        messages::log_to_stderr(config.server.log);
        let kernel = probed_kernel(config.server.ktls, &args.ktls_setting())?;
        let costs = config.server.costs(&mut problems);
        let metrics_listener = monitor::Listener::bind(&config.metrics, &mut problems, inherited)?;
        // Their problems are found by `build`.
        let site_logs = SiteLogs::new(&config.access_log, config.site_logs(), &mut Problems::of_arguments());
        let access_log = AccessLogPlans::new(&config.access_log, &site_logs, config.site.len() > 1, &problems);
        let otlp = monitor::Settings::new(&config.otlp, &mut problems.emptied());
        if config.tls_key_log.is_some() {
            // Before the file is made where clients could fetch it.
            let mut found = problems.emptied();
            refuse_secrets_in_roots(&config, &mut found);
            if !found.is_empty() {
                return Err(found.to_string());
            }
        }
        let tls = TlsProcess::new(tickets)?.with_key_log(config.tls_key_log.as_deref())?;
        let rekeys = kernel.probe().rekey_tx().is_ok();
        let generation = build(&config, problems, &tls, rekeys, None).map_err(|problems| problems.to_string())?;
        let mut made = generation.certificates.make_directories()?;
        if let Some(store) = &generation.store {
            made.extend(store.open()?);
        }
        let descriptors = DescriptorPlan::new(&config)?;
        // Opens files of /proc that may be out of reach later.
        let metrics = Metrics::new(metrics_listener.is_some() || otlp.is_some());
        Ok(Self {
            config,
            kernel,
            costs,
            metrics_listener,
            otlp,
            access_log,
            tls,
            generation,
            made,
            descriptors,
            metrics,
        })
    }

    /// Whether the kernel can change keys (KeyUpdate) on a connection that it seals.
    pub(super) fn kernel_rekeys(&self) -> bool {
        self.kernel.probe().rekey_tx().is_ok()
    }
}

fn probed_kernel(mode: KtlsMode, setting: &str) -> Result<Arc<KernelOffer>, String> {
    let kernel = Arc::new(KernelOffer::new(probe::probe()));
    kernel.check(mode, setting)?;
    if mode != KtlsMode::Never {
        kernel.self_check();
    }
    Ok(kernel)
}
