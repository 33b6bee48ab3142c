"""examples/grpo.py: PEFT's adapters, pushed every step."""

import os
import re
import subprocess
import sys

import harness
from harness import KEY, ClientTest, main


class Grpo(ClientTest):
    options = ("--allow-adapter-loading",)

    def test_the_reward_rises_and_the_server_samples_from_what_is_trained(self):
        run = subprocess.run(
            [sys.executable, harness.REPOSITORY / "examples/grpo.py", "--model", self.server.model, "--url", self.url,
             "--key", KEY], capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": str(harness.REPOSITORY / "python")})
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        steps = re.findall(r"reward ([\d.]+)  log-probabilities apart ([\de.+-]+)  pushed (\S+)", run.stdout)
        self.assertEqual([version for *_, version in steps], [f"step-{step}" for step in range(1, 61)])
        rewards = [float(reward) for reward, *_ in steps]
        self.assertGreater(sum(rewards[-10:]) / 10, 3 * sum(rewards[:10]) / 10, run.stdout)
        self.assertLess(max(float(apart) for _, apart, _ in steps), 2e-4, run.stdout)


if __name__ == "__main__":
    main()
